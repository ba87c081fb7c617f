"""Loads TensorFlow for the commands that only sometimes need it."""

from collections.abc import Sequence
from typing import Any

from synth_mtf.run import output, process
from synth_mtf.storage import filesystem


def for_paths(*paths: str) -> None:
  """Loads the plugin if TensorFlow has to read or write one of the paths."""
  if any(map(filesystem.is_bucket, paths)):
    process.load()


def runs(folders: Sequence[str]) -> list[Any]:
  """Returns the runs in folders, in which there must be some."""
  from synth_mtf.results import runs

  for_paths(*folders)
  return runs.read(*folders)


def describe(runs: Sequence[Any], modules: Sequence[str]) -> None:
  """Makes runs ready to be described.

  The plugin builds the models of configurations that are not known yet, which
  may have functions of the user's `modules`.
  """
  unknown = [run for run in runs if not run.is_known]
  if not unknown:
    return
  process.load(modules)
  console = output.Console()
  for number, run in enumerate(unknown, 1):
    text = f'build the model of {run.name} ({number} of {len(unknown)}) ...'
    with console.passing(text):
      run.describe()
