"""`synth-mtf replay`: prints the commands that reproduce a run."""

import argparse
import os

from synth_mtf.cli import arguments, data
from synth_mtf.errors import UserError
from synth_mtf.run import main, output

_DATA_DIR = 'SYNTH_MTF_DATA_DIR'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  arguments.add_runs(parser)
  data.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
  """Prints a shell script; runs nothing, and comments say what differs here."""
  with output.kept():
    main.prepare()
  from synth_mtf.results import runs
  from synth_mtf.run import origin

  given = os.environ.get(_DATA_DIR)
  for one in runs.read(*args.runs):
    _comment(f'{one.label}, {one.name}')
    differences: list[str] = []
    os.environ[_DATA_DIR] = given or ''
    try:
      if not one.origins:
        _comment('made by an older version, whose commands are not recorded')
      for made in one.origins:
        print(origin.command(made))
        differences += origin.differences(made)
        recorded = made['environment'].get(_DATA_DIR, '')
        there = os.path.join(made['folder'], recorded)
        if recorded and os.path.isdir(there):
          recorded = there
        os.environ[_DATA_DIR] = given or recorded  # of the last, an evaluation
      differences += origin.data_differences(one)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
      raise UserError(f'{one.name} has a damaged origin: {error!r}') from error
    for difference in dict.fromkeys(differences):
      _comment(difference)


def _comment(text: str) -> None:
  print('#', ' '.join(text.split()))  # a line break would end it
