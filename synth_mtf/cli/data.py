"""Flags for data and vocabulary, and a table of the rows in the data."""

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import Any

from synth_mtf.cli import arguments, early
from synth_mtf.errors import UserError, nearest_task
from synth_mtf.results import printing

_HEADERS = ('task', 'split', 'rows', 'released', 'faults', 'digest', 'files')
# Rows are counted and printed one by one, so widths cannot depend on them.
_LINE = '{:38}  {:21}  {:>11}  {:20}  {:>6}  {:16}  {}'
# What the environment calls the values of flags.
_VARIABLES = {
  'data_dir': 'SYNTH_MTF_DATA_DIR',
  'vocabulary': 'SYNTH_MTF_VOCABULARY',
  'skip_bad_rows': 'SYNTH_MTF_SKIP_BAD_ROWS',
  'task_file': 'SYNTH_MTF_TASK_FILE',
  'text_path': 'SYNTH_MTF_TEXT',
}
_MOST_FILES = 4
_MOST_LINES = 50  # of oddities and of faults


def add_settings(parser: argparse.ArgumentParser) -> None:
  """Adds --data_dir, --vocabulary and --task_file."""
  add_files(parser)
  parser.add_argument(
    '--vocabulary',
    type=arguments.vocabulary_file,
    metavar='MODEL',
    help="a SentencePiece .model, or 'bytes' (default: that of the run or "
    '$SYNTH_MTF_VOCABULARY)',
  )


def add_files(parser: argparse.ArgumentParser) -> None:
  """Adds --data_dir and --task_file."""
  parser.add_argument(
    '--data_dir',
    type=arguments.data_folder,
    metavar='FOLDER',
    help='folder of official files (default: that of the run, if there is one, '
    'or $SYNTH_MTF_DATA_DIR)',
  )
  parser.add_argument(
    '--task_file',
    type=arguments.task_files,
    metavar='YAML',
    help='files that define tasks (default: $SYNTH_MTF_TASK_FILE)',
  )


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of `add_settings`, and --module_import."""
  add_settings(parser)
  add_modules(parser)


def add_modules(parser: argparse.ArgumentParser) -> None:
  """Adds --module_import."""
  parser.add_argument(
    '--module_import',
    action='append',
    default=[],
    metavar='MODULE',
    help='a Python module that registers tasks or names of gin, as for '
    '`synth-mtf transformer`; it is run; may be repeated',
  )


def add_text(parser: argparse.ArgumentParser) -> None:
  """Adds --text, for which another command has another meaning."""
  parser.add_argument(
    '--text',
    dest='text_path',
    type=arguments.text_path,
    metavar='PATH',
    help='a file of text, or a folder with .txt and .jsonl files, in place of '
    'corpus/ in the data folder (default: $SYNTH_MTF_TEXT)',
  )


def use(args: argparse.Namespace) -> None:
  """Sets environment variables of this process to the values of the flags.

  Commands that do not have the flags keep the user's.
  """
  for flag, variable in _VARIABLES.items():
    value = getattr(args, flag, None)
    if value:
      os.environ[variable] = str(value)


def check_task_files(args: argparse.Namespace) -> None:
  """Refuses faults of task files before TensorFlow is imported."""
  setting = os.environ.get('SYNTH_MTF_TASK_FILE')
  if setting:
    early.check_task_files(
      setting,
      has_modules=bool(getattr(args, 'module_import', None)),
      is_cached=bool(os.environ.get('SYNTH_MTF_CACHE_DIR')),
    )


def check_names(names: Iterable[str], modules: Sequence[str] = ()) -> None:
  """Refuses unknown tasks and mixtures before TensorFlow is imported.

  Task files and `modules` define others; then, or with another T5, nothing is
  checked.
  """
  known = arguments.task_names()
  if not known or modules or os.environ.get('SYNTH_MTF_TASK_FILE'):
    return
  for name in names:
    if name not in known:
      hint = nearest_task(name, known) or (
        '; `synth-mtf tasks` lists them, and a task of your own needs '
        '--task_file=YAML'
      )
      raise UserError(f'unknown task or mixture {name!r}{hint}')


def print_rows(names: Iterable[str], data_dir: str) -> list[Any]:
  """Reads the files of tasks, and prints a line for each split with files.

  Returns the `SplitRows` of all splits.
  """
  from synth_mtf.tasks import get, inspection

  splits: list[Any] = []
  has_headers = False
  for name in names:
    for split in inspection.splits_of(get(name)):
      if split.files:
        if not has_headers:
          print(_LINE.format(*_HEADERS))
          has_headers = True
        print(_LINE.format(*_cells(split, data_dir)), flush=True)
      splits.append(split)
  return splits


def print_odd(splits: Iterable[Any]) -> bool:
  """Prints odd and malformed rows; returns whether there are malformed ones."""
  files = [file for split in splits for file in split.files]
  notes = [f'odd    {note}' for file in files for note in file.notes]
  faults = [fault for file in files for fault in file.faults]
  for lines in (notes, faults):
    distinct = [*dict.fromkeys(lines)]
    for line in distinct[:_MOST_LINES]:
      print(line)
    more = len(distinct) - _MOST_LINES
    if more > 0:
      print(f'{more:,} more such lines')
  return bool(faults)


def _cells(split: Any, data_dir: str) -> Sequence[str]:
  prefix = os.path.join(data_dir, '')
  paths = [file.path.removeprefix(prefix) for file in split.files]
  if len(paths) > _MOST_FILES:
    paths = [*paths[:_MOST_FILES], f'and {len(paths) - _MOST_FILES:,} more']
  return (
    split.task,
    split.split,
    printing.count(split.rows),
    split.released,
    str(sum(file.num_faults for file in split.files)),
    split.digest,
    ' '.join(paths),
  )
