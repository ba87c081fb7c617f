"""Refuses mistakes in gin, task files and data before TensorFlow is imported.

That takes seconds, after which the run checks everything again. What cannot be
known so early, such as names that a module of the user registers, passes here.
"""

import argparse
import importlib.util
import os
import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from synth_mtf import paths
from synth_mtf.cli import arguments, needed
from synth_mtf.commands import variants
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem

if TYPE_CHECKING:
  from synth_mtf.host.written import Statements

# Flags with which gin knows other names, or ignores unknown ones.
_OTHER_NAMES = '-+(module_import|skip_all_gin|additional_deprecated_gin)'
# Functions of T5's that read examples, by the mode of a run.
_READERS = {
  'train': 'mesh_train_dataset_fn',
  'eval': 'mesh_eval_dataset_fn',
  'perplexity_eval': 'mesh_eval_dataset_fn',
  'score_eval': 'mesh_eval_dataset_fn',
  'score_from_dataset': 'mesh_eval_dataset_fn',
}
_TEXT_TASK = 'synth_text_span_corruption'
_DEFAULTS = 'transformer/gin/defaults.gin'  # which T5's main reads first


def has_text(text: str | None, data_dir: str | None) -> bool:
  """Whether flags or the environment say what text there is to pretrain on."""
  named = ('SYNTH_MTF_TEXT', 'SYNTH_MTF_DATA_DIR', 'SYNTH_MTF_CACHE_DIR')
  return bool(text or data_dir or any(map(os.environ.get, named)))


def check_corpus(text: str | None, data_dir: str | None) -> None:
  """Refuses a data folder without text, if that is what would be read.

  Args:
    text: as in --text.
    data_dir: as in --data_dir.
  """
  folder = data_dir or os.environ.get('SYNTH_MTF_DATA_DIR')
  elsewhere = ('TEXT', 'CACHE_DIR', 'TASK_DATA_DIRS')
  if text or any(os.environ.get(f'SYNTH_MTF_{name}') for name in elsewhere):
    return
  if not folder or folder == 'tfds' or filesystem.is_bucket(folder):
    return
  folder = os.path.expanduser(folder)
  for ending in ('txt', 'jsonl', 'json'):
    for pattern in (f'corpus/**/*.{ending}', f'corpus/**/*.{ending}.gz'):
      if filesystem.find(folder, pattern):
        return
  raise UserError(
    f'{folder} has no text to pretrain on: no file corpus/**/*.txt, .jsonl or '
    '.json. Put it there, or give --text=FILE_OR_FOLDER.'
  )


def check_task_files(
  setting: str, has_modules: bool = False, is_cached: bool = False
) -> None:
  """Checks what task files say, and the first lines of the files they name.

  Args:
    setting: as in --task_file.
    has_modules: whether modules may define other tasks.
    is_cached: whether there may be a cache, with the rows of files elsewhere.
  """
  from synth_mtf.rows import task_files  # imports yaml

  names = {*arguments.task_names()}
  known = None if has_modules or not names else names
  with filesystem.named_by('--task_file'):
    for path in task_files.paths_in(setting):
      if filesystem.is_bucket(path):
        return
      defined = task_files.read(path, known)
      names |= {defined.name, *defined.mixtures}
      in_buckets = any(map(filesystem.is_bucket, defined.files.values()))
      if not is_cached and not in_buckets:
        defined.check_files()
        defined.check_headers()


def check_split(setting: str, task: str | None, split: str) -> None:
  """Refuses a split for which a task file has no files.

  Args:
    setting: as in --task_file.
    task: of the run; the files may define others.
    split: which is read.
  """
  from synth_mtf.rows import task_files

  for path in task_files.paths_in(setting):
    if filesystem.is_bucket(path):
      continue
    defined = task_files.read(path, None)
    if defined.name == task and split not in defined.files:
      raise UserError(
        f'{path}: {task} has no {split} file, only {", ".join(defined.files)}: '
        f'add one, as in `files: {{train: train.csv, {split}: dev.csv}}`, or '
        'give another --split'
      )


def check_flags_of_t5(words: Sequence[str]) -> None:
  """Checks the files that flags of T5's main name, and the names in gin.

  What the flags mean is up to T5's main, which checks everything again.
  """
  parser = arguments.NamingParser(add_help=False, allow_abbrev=False)
  parser.add_argument('--data_dir', type=arguments.data_folder)
  parser.add_argument('--vocabulary', type=arguments.vocabulary_file)
  parser.add_argument('--task_file', type=arguments.task_files)
  for name in ('text', 'cache_dir', 'task_data_dirs', 'device', 'tpu'):
    parser.add_argument(f'--{name}')
  parser.add_argument('--additional_task_cache_dirs')
  flags, rest = parser.parse_known_args(words)
  statements = check_gin_of(rest)
  setting = flags.task_file or os.environ.get('SYNTH_MTF_TASK_FILE')
  if setting:
    check_task_files(
      setting,
      has_modules=any('module_import' in word for word in rest),
      is_cached=any('cache_dir' in x.lower() for x in (*words, *os.environ)),
    )
  # With devices, other hosts wait for this one to report what it lacks.
  if statements and not flags.device and not flags.tpu:
    _check_needed(statements, flags)


def _check_needed(statements: 'Statements', flags: argparse.Namespace) -> None:
  """Refuses a run whose data or vocabulary is missing."""

  def setting(name: str) -> Any:
    return (
      getattr(flags, name)
      or statements.value(f'settings.{name}')
      or os.environ.get(f'SYNTH_MTF_{name.upper()}', '')
    )

  reader = _READERS.get(statements.value('run.mode') or 'train', '')
  elsewhere = (
    setting('cache_dir'),
    setting('task_data_dirs'),
    flags.additional_task_cache_dirs,
    statements.value(f'{reader}.use_cached'),
  )
  name = statements.value(f'{reader}.mixture_or_task_name')
  if isinstance(name, str) and not any(elsewhere):
    if name == _TEXT_TASK:
      check_corpus(setting('text'), setting('data_dir'))
    else:
      split = statements.value('run.dataset_split') or 'train'
      needed.check_files(name, split, setting('data_dir'))
  name = statements.value('get_vocabulary.mixture_or_task_name')
  if isinstance(name, str):
    needed.check_vocabulary([name], setting('vocabulary'))


def check_gin_of(words: Sequence[str]) -> 'Statements | None':
  """Checks the statements that flags of T5's main describe.

  Returns them, or None if there may be others. Where gin is missing, the
  command says so when it loads all that it needs.
  """
  try:
    from synth_mtf.host import explanations, gin_files
  except ImportError:
    return None
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  for name in ('gin_file', 'gin_param', 'gin_location_prefix'):
    parser.add_argument(f'--{name}', action='append', default=[])
  flags, rest = parser.parse_known_args(words)
  prefixes = [
    folder for x in flags.gin_location_prefix for folder in x.split(',')
  ]
  check_gin_files(flags.gin_file, prefixes)
  if any(re.match(_OTHER_NAMES, word) for word in rest):
    return None
  statements = _statements(flags.gin_file, flags.gin_param, prefixes)
  read = statements.macros_read
  for name in gin_files.bindings('\n'.join(flags.gin_param)):
    if name not in read and not re.search('[./]', name):
      raise UserError(explanations.unread_macro(name, read))
  return statements


def check_gin_files(files: Sequence[str], prefixes: Sequence[str] = ()) -> None:
  """Checks that gin files exist where T5's main looks for them."""
  folders = _gin_folders(prefixes)
  for file in files:
    candidates = [os.path.join(folder, file) for folder in folders]
    if any(arguments.may_exist(candidate) for candidate in candidates):
      continue
    name = pathlib.PurePath(file).stem
    variant = variants.paper_file(name)
    if variant:
      raise UserError(
        f"gin file {file!r} does not exist: the paper's {name} is "
        f'variants/{variant}.gin'
      )
    raise UserError(paths.missing_gin_file(file, folders))


def check_gin(
  files: Sequence[str],
  bindings: Sequence[str] = (),
  modules: Sequence[str] = (),
) -> None:
  """Checks gin files, bindings as in --gin_param, and the names in them.

  Those of `modules` of the user are not known yet.
  """
  check_gin_files(files)
  if not modules:
    _statements(files, bindings)


def _statements(
  files: Sequence[str], bindings: Sequence[str], prefixes: Sequence[str] = ()
) -> 'Statements':
  """Returns a statements, whose syntax and names are checked."""
  from synth_mtf.host.written import Statements

  statements = Statements(_gin_folders(prefixes))
  for file in (*_package_folders('mesh_tensorflow', _DEFAULTS), *files):
    statements.add_file(file)
  statements.add_bindings(bindings)
  statements.check_names()
  return statements


def _gin_folders(prefixes: Sequence[str]) -> list[str]:
  """Returns where T5's main looks for gin files, in this order."""
  t5s = _package_folders('t5', 'models/gin')
  return [*prefixes, '', paths.gin_path(), *t5s]


def _package_folders(package: str, path: str) -> list[str]:
  """Returns a path in a package that is installed, without importing it."""
  found = importlib.util.find_spec(package)
  folders = (found and found.submodule_search_locations) or ()
  return [os.path.join(folder, path) for folder in folders]
