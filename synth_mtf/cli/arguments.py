"""Checks of arguments before TensorFlow is imported, which takes seconds.

The parser calls them as the `type` of an argument, and adds the flag to what
they refuse. A type that is a `Completed` also tells a shell what the argument
can be.
"""

import abc
import argparse
import importlib.util
import math
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from synth_mtf import paths
from synth_mtf.commands import variants
from synth_mtf.errors import UserError, nearest
from synth_mtf.storage import filesystem, remembered
from synth_mtf.storage.filesystem import Unreadable

if TYPE_CHECKING:
  from synth_mtf.host.written import Written

_DATA_FOLDER = (
  'expected a folder of official files (docs/data.md shows the layout)'
)

# Flags with which gin knows other names, or ignores unknown ones.
_OTHER_NAMES = '-+(module_import|skip_all_gin|additional_deprecated_gin)'
# What says that text to pretrain on is not in the data folder.
_OTHER_TEXT = (
  # With devices, other hosts wait for this one to report what it lacks.
  '-+(text|cache_dir|task_data_dirs|additional_task_cache_dirs|device|tpu)|'
  '.*(MIXTURE_NAME|tasks.settings|use_cached|run.mode|eval.gin|infer.gin)'
)
_DEFAULTS = 'transformer/gin/defaults.gin'  # which T5's main reads first
_TASK_FILE = '"Your own task" in docs/data.md shows such a file'
_DATA_ENDINGS = ('.csv', '.tsv', '.txt', '.json', '.jsonl', '.ndjson')


class _Help(argparse.ArgumentDefaultsHelpFormatter):
  """Adds the default of an argument, unless its help or nothing says it."""

  def _get_help_string(self, action: argparse.Action) -> str | None:
    says_it = 'default' in (action.help or '')
    if says_it or action.required or action.default in (None, False, []):
      return action.help
    return super()._get_help_string(action)


class _NamingParser(argparse.ArgumentParser):
  """Adds the flag to what the type of its value refuses."""

  def _get_value(self, action: argparse.Action, text: str) -> Any:
    if not action.option_strings:  # the path is all that was typed
      return super()._get_value(action, text)
    with filesystem.named_by('/'.join(action.option_strings)):
      return super()._get_value(action, text)


class Parser(_NamingParser):
  """Suggests names that are similar to a mistyped command, flag or choice.

  Attributes:
    anywhere: the positional arguments that may also come after flags, which
      argparse refuses.
  """

  anywhere = ''
  _words: Sequence[str] = ()

  def __init__(self, **options: Any) -> None:
    super().__init__(**{'formatter_class': _Help, **options})

  def parse_known_args(
    self, args: Sequence[str] | None = None, namespace: Any = None
  ) -> Any:
    self._words = args or ()
    namespace, unknown = super().parse_known_args(args, namespace)
    if self.anywhere:
      later = [word for word in unknown if not word.startswith('-')]
      unknown = [word for word in unknown if word.startswith('-')]
      before = getattr(namespace, self.anywhere)
      setattr(namespace, self.anywhere, [*before, *later])
    if unknown:
      self._refuse(unknown)
    return namespace, unknown

  def _refuse(self, unknown: Sequence[str]) -> NoReturn:
    flag = unknown[0].partition('=')[0]
    hint = nearest(flag, self._option_string_actions)
    super().error(f'unrecognized arguments: {" ".join(unknown)}{hint}')

  def error(self, message: str) -> NoReturn:
    # A mistyped flag is why a required one may be missing.
    if message.startswith('the following arguments are required'):
      unknown = [word for word in self._words if self._is_unknown(word)]
      if unknown:
        self._refuse(unknown)
    match = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
    if match:
      choice, choices = match.groups()
      message += nearest(choice, re.findall(r"[^', ]+", choices))
    super().error(message)

  def _is_unknown(self, word: str) -> bool:
    """Whether a word is a flag that the command does not have."""
    flag = word.partition('=')[0]
    return (
      len(flag) > 2
      and flag[:2] == '--'
      and flag not in self._option_string_actions
    )


def at_least(least: int) -> Callable[[str], int]:
  """Returns a check that a number is whole and not below `least`."""

  def parse(text: str) -> int:
    if not text.isdecimal() or int(text) < least:
      raise argparse.ArgumentTypeError(
        f'{text!r}: expected a number, {least} or more'
      )
    return int(text)

  return parse


def seed(text: str) -> int:
  """Checks a seed of TensorFlow."""
  number = at_least(0)(text)
  if number >= 2**63:
    raise argparse.ArgumentTypeError(f'{text}: expected a number below 2**63')
  return number


def positive(text: str) -> float:
  """Checks that a number is above 0."""
  try:
    number = float(text)
  except ValueError:
    number = math.nan
  if not 0 < number < math.inf:
    raise argparse.ArgumentTypeError(
      f'{text!r}: expected a number above 0, such as 0.01'
    )
  return number


def existing(path: str) -> str:
  """Checks that a run or a checkpoint exists; a bucket is not checked."""
  if _may_exist(path) or os.path.lexists(f'{path}.index'):
    return path
  parent, name = os.path.split(os.path.normpath(path))
  parent = parent or '.'
  siblings = os.listdir(parent) if os.path.isdir(parent) else []
  raise UserError(
    f'{path} does not exist{nearest(name, siblings)}; expected a model folder, '
    'the folder of a demo, or a checkpoint or file in one'
  )


def _may_exist(path: str) -> bool:
  """Whether a path exists, or is in a bucket, which takes longer to ask."""
  return filesystem.is_bucket(path) or os.path.lexists(path)


def new_path(path: str) -> str:
  """Checks the name of what is written."""
  filesystem.check_name(path)
  return path


def examples_file(path: str) -> str:
  """Checks that there is a file of examples; a bucket is not checked."""
  if not _may_exist(path):
    raise Unreadable(
      f'{path} is missing or empty; expected one example per line'
    )
  if os.path.isdir(path):
    raise Unreadable(f'{path} is a folder; expected a file of examples')
  return path


def run_folder(path: str) -> str:
  """Checks that the folder of a run exists."""
  if os.path.isfile(existing(path)):
    raise UserError(
      f'{path} is a file; expected a model folder, or the folder of a demo'
    )
  return path


def data_folder(path: str) -> str:
  """Checks that a folder of official files exists; `~` is the home folder."""
  expanded = os.path.expanduser(path)
  if path and not _may_exist(expanded):
    raise Unreadable(f'{expanded} does not exist; {_DATA_FOLDER}')
  if os.path.isfile(expanded):
    raise Unreadable(f'{expanded} is a file; {_DATA_FOLDER}')
  return path


def text_path(path: str) -> str:
  """Checks that there is a file of text or a folder; `~` is the home folder."""
  expanded = os.path.expanduser(path)
  if not path or not _may_exist(expanded):
    there = ' or '.join(filesystem.similar(expanded)) if path else ''
    hint = f'; there is {there}' if there else ''
    raise Unreadable(
      f'{expanded or "the path"} does not exist{hint}; expected a file of '
      'text, or a folder of .txt or .jsonl files'
    )
  return path


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


def vocabulary_file(name: str) -> str:
  """Checks that a SentencePiece model exists; `bytes` is not a file."""
  path = os.path.expanduser(name)
  if name not in ('', 'bytes') and not _may_exist(path):
    raise Unreadable(
      f'{path} does not exist; expected the path of a .model file, which '
      "`synth-mtf vocabulary` makes, or 'bytes'"
    )
  return name


def task_files(setting: str) -> str:
  """Checks that files that define tasks exist; commas separate them."""
  for name in setting.split(','):
    path = os.path.expanduser(name.strip())
    if path and not _may_exist(path):
      raise Unreadable(f'{path} does not exist; expected a YAML file')
    if path.removesuffix('.gz').endswith(_DATA_ENDINGS):
      raise Unreadable(
        f'{path} has the rows of a task; expected the YAML file that says '
        'what they mean, with name, files, inputs, targets and metrics '
        f'({_TASK_FILE})'
      )
  return setting


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

  names = {*task_names()}
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


def name_in_task_file(path: str) -> str:
  """Returns the name of the task that a file defines, without checking it."""
  text = filesystem.read(path, filesystem.SETTINGS_BYTES)
  name = re.search(rb'^name:\s*[\'"]?(\w+)', text, re.M)
  if not name:
    raise Unreadable(f'{path} has no line `name: NAME` ({_TASK_FILE})')
  return name[1].decode()


def check_flags_of_t5(words: Sequence[str]) -> None:
  """Checks the files that flags of T5's main name, and the names in gin.

  What the flags mean is up to T5's main, which checks everything again.
  """
  parser = _NamingParser(add_help=False, allow_abbrev=False)
  parser.add_argument('--data_dir', type=data_folder)
  parser.add_argument('--vocabulary', type=vocabulary_file)
  parser.add_argument('--task_file', type=task_files)
  flags, rest = parser.parse_known_args(words)
  check_gin_of(rest)
  is_elsewhere = any(re.match(_OTHER_TEXT, word) for word in words)
  if _reads_corpus(words) and not is_elsewhere:
    check_corpus(None, flags.data_dir)
  setting = flags.task_file or os.environ.get('SYNTH_MTF_TASK_FILE')
  if setting:
    check_task_files(
      setting,
      has_modules=any('module_import' in word for word in rest),
      is_cached=any('cache_dir' in x.lower() for x in (*rest, *os.environ)),
    )


def _reads_corpus(words: Sequence[str]) -> bool:
  return any(word.endswith('runs/pretrain_text.gin') for word in words)


def check_gin_of(words: Sequence[str]) -> None:
  """Checks the configuration that flags of T5's main describe.

  Where gin is missing, the command says so when it loads all that it needs.
  """
  try:
    from synth_mtf.host import explanations, gin_files
  except ImportError:
    return
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  for name in ('gin_file', 'gin_param', 'gin_location_prefix'):
    parser.add_argument(f'--{name}', action='append', default=[])
  flags, rest = parser.parse_known_args(words)
  prefixes = [
    folder for x in flags.gin_location_prefix for folder in x.split(',')
  ]
  check_gin_files(flags.gin_file, prefixes)
  if any(re.match(_OTHER_NAMES, word) for word in rest):
    return
  read = _written(flags.gin_file, flags.gin_param, prefixes).macros_read
  for name in gin_files.bindings('\n'.join(flags.gin_param)):
    if name not in read and not re.search('[./]', name):
      raise UserError(explanations.unread_macro(name, read))


def check_gin_files(files: Sequence[str], prefixes: Sequence[str] = ()) -> None:
  """Checks that gin files exist where T5's main looks for them."""
  folders = _gin_folders(prefixes)
  for file in files:
    candidates = [os.path.join(folder, file) for folder in folders]
    if any(_may_exist(candidate) for candidate in candidates):
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
    _written(files, bindings)


def _written(
  files: Sequence[str], bindings: Sequence[str], prefixes: Sequence[str] = ()
) -> 'Written':
  """Returns a configuration, whose syntax and names are checked."""
  from synth_mtf.host.written import Written

  configuration = Written(_gin_folders(prefixes))
  for file in (*_package_folders('mesh_tensorflow', _DEFAULTS), *files):
    configuration.add_file(file)
  configuration.add_bindings(bindings)
  configuration.check_names()
  return configuration


def _gin_folders(prefixes: Sequence[str]) -> list[str]:
  """Returns where T5's main looks for gin files, in this order."""
  t5s = _package_folders('t5', 'models/gin')
  return [*prefixes, '', paths.gin_path(), *t5s]


def _package_folders(package: str, path: str) -> list[str]:
  """Returns a path in a package that is installed, without importing it."""
  found = importlib.util.find_spec(package)
  folders = (found and found.submodule_search_locations) or ()
  return [os.path.join(folder, path) for folder in folders]


def add_runs(
  parser: argparse.ArgumentParser,
  what: str = 'model folders of any command, folders of `synth-mtf demo`, '
  'folders of these',
  check: Callable[[str], str] = run_folder,
) -> None:
  """Adds the runs that a command reads."""
  parser.add_argument('runs', nargs='+', type=check, metavar='RUN', help=what)


class Completed(abc.ABC):
  """A type of argument whose values a shell completes.

  Attributes:
    separators: what may be between several values.
  """

  separators = ''

  @abc.abstractmethod
  def __call__(self, text: str) -> Any:
    """Returns the value of an argument, as the `type` of argparse does."""

  @abc.abstractmethod
  def known(self) -> Sequence[str]:
    """Returns all values, without TensorFlow."""

  def completions(self, prefix: str, **_: Any) -> list[str]:
    """Returns what a word can be that begins with `prefix`, for argcomplete."""
    last = max(map(prefix.rfind, self.separators), default=-1)
    return [prefix[: last + 1] + value for value in self.known()]


class GinNames(Completed):
  """Names of gin files in a folder, joined by commas or `+`."""

  separators = ',+'

  def __init__(self, folder: str) -> None:
    self._folder = folder

  def __call__(self, names: str) -> str:
    known = paths.gin_names(self._folder)
    for name in re.split('[,+]', names):
      file = f'{self._folder}/{name}.gin'
      if name not in known and not os.path.exists(file):
        files = [f'{self._folder}/{other}.gin' for other in known]
        hint = paths.nearest_gin_file(file, files)
        raise Unreadable(f"gin file '{file}' does not exist{hint}")
    return names

  def known(self) -> Sequence[str]:
    return paths.gin_names(self._folder)


class Variant(Completed):
  """A variant, by the paper's name or that of its gin file."""

  def __call__(self, name: str) -> str:
    return variants.file_of(name)

  def known(self) -> Sequence[str]:
    return variants.known()


class Variants(GinNames):
  """Variants by either name, separated by commas; `+` joins names of files."""

  def __init__(self) -> None:
    super().__init__('variants')

  def __call__(self, names: str) -> str:
    files = [variants.paper_file(name) or name for name in names.split(',')]
    return super().__call__(','.join(files))

  def known(self) -> Sequence[str]:
    return variants.known()


class GinFile(Completed):
  """A gin file; `check_gin_files` checks those of all flags together."""

  def __call__(self, file: str) -> str:
    return file

  def known(self) -> Sequence[str]:
    folder = pathlib.Path(paths.gin_path())
    return sorted(
      str(path.relative_to(folder)) for path in folder.glob('*/*.gin')
    )


class TaskName(Completed):
  """A task or a mixture; others may be registered later."""

  def __call__(self, name: str) -> str:
    return name

  def known(self) -> Sequence[str]:
    return task_names()


class TaskNames(Completed):
  """Tasks and mixtures, separated by commas."""

  separators = ','

  def __call__(self, names: str) -> list[str]:
    return names.split(',')

  def known(self) -> Sequence[str]:
    return task_names()


def task_names() -> Sequence[str]:
  """Returns the names of our tasks and mixtures and of T5's.

  With a host that this version of the package does not know, there are none.
  """
  return remembered.get('names') or []
