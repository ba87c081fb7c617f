"""`synth-mtf replay`: prints the commands that reproduce a run."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from synth_mtf.cli import arguments, data, loading
from synth_mtf.errors import UserError
from synth_mtf.run import main, output, process

_DATA_DIR = 'SYNTH_MTF_DATA_DIR'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  arguments.add_runs(parser)
  data.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
  """Prints a shell script; runs nothing, and comments say what differs here."""
  read = loading.runs(args.runs)
  process.load(args.module_import)
  with output.kept():
    main.prepare()
  from synth_mtf.run import origin

  given = os.environ.get(_DATA_DIR)
  for model in read:
    _comment(f'{model.label}, {model.name}')
    try:
      differences = _print_commands(model.origins, given)
      differences += origin.data_differences(model)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
      message = f'{model.name} has a damaged origin: {error!r}'
      raise UserError(message) from error
    for difference in dict.fromkeys(differences):
      _comment(difference)


def _print_commands(
  origins: Sequence[Any], given_data_dir: str | None
) -> list[str]:
  """Prints the commands of a model; returns what differs on this machine.

  Leaves the data folder of the last one, an evaluation, in the environment.
  """
  from synth_mtf.run import origin

  differences: list[str] = []
  os.environ[_DATA_DIR] = given_data_dir or ''
  if not origins:
    _comment('made by an older version, whose commands are not recorded')
  for made in origins:
    print(origin.command(made))
    differences += origin.differences(made)
    data_dir = made['environment'].get(_DATA_DIR, '')
    absolute = os.path.join(made['folder'], data_dir)
    if data_dir and os.path.isdir(absolute):
      data_dir = absolute
    os.environ[_DATA_DIR] = given_data_dir or data_dir
  return differences


def _comment(text: str) -> None:
  print('#', ' '.join(text.split()))  # a line break would end it
