"""`synth-mtf replay`: prints the commands that make a run again."""

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from synth_mtf.cli import arguments, data
from synth_mtf.errors import UserError
from synth_mtf.run import main, output, process

_DATA_DIR = 'SYNTH_MTF_DATA_DIR'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  arguments.add_runs(parser)
  parser.add_argument(
    '--out', help='in the commands, replaces the folder of the only run'
  )
  data.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
  """Prints a shell script; runs nothing, and comments say what differs here."""
  data.use(args)
  process.load_quietly()
  with output.kept():
    main.prepare()
  from synth_mtf.results import runs
  from synth_mtf.run import origin

  found = runs.read(*args.runs)
  if args.out and len(found) > 1:
    raise UserError(f'--out is for one run; there are {len(found)}')
  for one in found:
    _comment(f'{one.label}, {one.name}')
    if not one.origins:
      _comment('made by an older version, whose commands are not recorded')
    try:
      for line in _script(one, args.out):
        print(line)
      differences = dict.fromkeys(
        x for made in one.origins for x in origin.differences(made)
      )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
      raise UserError(f'{one.name} has a damaged origin: {error!r}') from error
    for difference in [*differences, *origin.data_differences(one)]:
      _comment(difference)
  return 0


def _script(one: Any, out: Optional[str]) -> Iterator[str]:
  """Yields the commands of a run, and sets the data that they read."""
  commands = [shlex.split(made['command']) for made in one.origins]
  moved, folder = {}, ''
  for old in map(_model_dir, commands) if out else ():
    inside = os.path.basename(old) if len(one.folders) > 1 else ''
    moved[old] = os.path.join(os.path.abspath(out or ''), inside).rstrip('/')
  for made, words in zip(one.origins, commands):
    if made['folder'] != folder:
      folder = made['folder']
      yield shlex.join(['cd', folder])
    yield _line(made, words, moved)
    for name in {_DATA_DIR} & made['environment'].keys():
      os.environ.setdefault(name, made['environment'][name])


def _comment(text: str) -> None:
  print('#', ' '.join(text.split()))  # a line break would end it


def _model_dir(words: list[str]) -> str:
  text = '\n'.join(words).replace('--model_dir\n', '--model_dir=')
  return text.partition('--model_dir=')[2].partition('\n')[0]


def _line(
  made: Mapping[str, Any], words: list[str], moved: Mapping[str, str]
) -> str:
  """Returns a command for the shell, with folders moved."""
  is_ours = os.path.basename(words[0]) in ('synth-mtf', '__main__.py')
  words = ['synth-mtf' if is_ours else 't5_mesh_transformer', *words[1:]]
  for old, new in sorted(moved.items(), reverse=True):
    words = [word.replace(old, new) for word in words]
  from synth_mtf.run.origin import ENVIRONMENT  # and no others' LD_PRELOAD

  known = made['environment'].items()
  variables = [f'{k}={v}' for k, v in known if k in ENVIRONMENT]
  return shlex.join([*(['env', *variables] if variables else []), *words])
