"""Loads TensorFlow for the commands that only sometimes need it."""

from collections.abc import Sequence
from typing import Any

from synth_mtf import filesystem
from synth_mtf.run import process


def for_paths(paths: Sequence[str]) -> None:
  """Loads the plugin if TensorFlow has to read one of the paths."""
  if any(map(filesystem.is_bucket, paths)):
    process.load()


def runs(folders: Sequence[str]) -> list[Any]:
  """Returns the runs in folders, ready to be described.

  The models of configurations that are not known yet need the plugin.
  """
  from synth_mtf.results import runs

  for_paths(folders)
  read = runs.read(*folders)
  if not all(run.is_known for run in read):
    process.load()
  return read
