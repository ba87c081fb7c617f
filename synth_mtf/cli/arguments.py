"""Checks of arguments before TensorFlow is imported, which takes seconds.

The parser calls them as the `type` of an argument, and adds the flag to what
they refuse. A type that is a `Completed` also tells a shell what the argument
can be.
"""

import abc
import argparse
import math
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from synth_mtf import paths
from synth_mtf.cli import other_words
from synth_mtf.commands import variants
from synth_mtf.errors import UserError, nearest, question
from synth_mtf.storage import filesystem, remembered
from synth_mtf.storage.filesystem import Unreadable

_DATA_FOLDER = (
  'expected a folder of official files (docs/data.md shows the layout)'
)

_TASK_FILE = '"Your own task" in docs/data.md shows such a file'
_DATA_ENDINGS = ('.csv', '.tsv', '.txt', '.json', '.jsonl', '.ndjson')

# What a word without a flag is often meant for.
_FOR_WORDS = ('--from', '--text')


class _Help(argparse.ArgumentDefaultsHelpFormatter):
  """Adds the default of an argument, unless its help or nothing says it."""

  def _get_help_string(self, action: argparse.Action) -> str | None:
    says_it = 'default' in (action.help or '')
    if says_it or action.required or action.default in (None, False, []):
      return action.help
    return super()._get_help_string(action)


class NamingParser(argparse.ArgumentParser):
  """Adds the flag to what the type of its value refuses."""

  def _get_value(self, action: argparse.Action, text: str) -> Any:
    if not action.option_strings:  # the path is all that was typed
      return super()._get_value(action, text)
    with filesystem.named_by('/'.join(action.option_strings)):
      return super()._get_value(action, text)


class Parser(NamingParser):
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
    flag = unknown[0]
    if flag.startswith('-'):
      flag = flag.partition('=')[0]
    super().error(
      f'unrecognized arguments: {" ".join(unknown)}{self._hint(flag)}'
    )

  def _hint(self, flag: str) -> str:
    """Suggests what to give in place of a flag that the command lacks."""
    flags = {*self._option_string_actions} - {'-h', '--help'}
    others = [
      action.metavar
      for action in self._actions
      if not action.option_strings and isinstance(action.metavar, str)
    ]
    if not flag.startswith('-'):
      return question(f'{x}={flag}' for x in _FOR_WORDS if x in flags)
    meant = other_words.arguments(flag, {*flags, *others})
    if meant and not meant[0].startswith('-'):
      words = ' '.join([self.prog, *others])
      return f'; {meant[0]} comes without a flag: {words}'
    return question(meant) or nearest(flag, flags)

  def error(self, message: str) -> NoReturn:
    # A mistyped flag is why a required one may be missing.
    if message.startswith('the following arguments are required'):
      unknown = [word for word in self._words if self._is_unknown(word)]
      if unknown:
        self._refuse(unknown)
    match = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
    if match:
      choice, choices = match.groups()
      known = re.findall(r"[^', ]+", choices)
      meant = other_words.commands(choice, known)
      message += question(meant) or nearest(choice, known)
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
  if may_exist(path) or os.path.lexists(f'{path}.index'):
    return path
  expanded = os.path.expanduser(path)
  if expanded != path and os.path.lexists(expanded):
    raise UserError(
      f'{path} does not exist: the shell replaces ~ only at the start of a '
      f'word. Write {expanded}'
    )
  parent, name = os.path.split(os.path.normpath(path))
  parent = parent or '.'
  siblings = os.listdir(parent) if os.path.isdir(parent) else []
  raise UserError(
    f'{path} does not exist{nearest(name, siblings)}; expected a model folder, '
    'the folder of a demo, or a checkpoint or file in one'
  )


def may_exist(path: str) -> bool:
  """Whether a path exists, or is in a bucket, which takes longer to ask."""
  return filesystem.is_bucket(path) or os.path.lexists(path)


def new_path(path: str) -> str:
  """Checks the name of what is written."""
  filesystem.check_name(path)
  return path


def examples_file(path: str) -> str:
  """Checks that there is a file of examples; a bucket is not checked."""
  if not may_exist(path):
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
  if path and not may_exist(expanded):
    raise Unreadable(f'{expanded} does not exist; {_DATA_FOLDER}')
  if os.path.isfile(expanded):
    raise Unreadable(f'{expanded} is a file; {_DATA_FOLDER}')
  return path


def text_path(path: str) -> str:
  """Checks that there is a file of text or a folder; `~` is the home folder."""
  expanded = os.path.expanduser(path)
  if not path or not may_exist(expanded):
    there = ' or '.join(filesystem.similar(expanded)) if path else ''
    hint = f'; there is {there}' if there else ''
    raise Unreadable(
      f'{expanded or "the path"} does not exist{hint}; expected a file of '
      'text, or a folder of .txt or .jsonl files'
    )
  return path


def vocabulary_file(name: str) -> str:
  """Checks that a SentencePiece model exists; `bytes` is not a file."""
  path = os.path.expanduser(name)
  if name not in ('', 'bytes') and not may_exist(path):
    raise Unreadable(
      f'{path} does not exist; expected the path of a .model file, which '
      "`synth-mtf vocabulary` makes, or 'bytes'"
    )
  return name


def task_files(setting: str) -> str:
  """Checks that files that define tasks exist; commas separate them."""
  for name in setting.split(','):
    path = os.path.expanduser(name.strip())
    if path and not may_exist(path):
      several = '; a comma separates files' if ',' in setting else ''
      raise Unreadable(f'{path} does not exist; expected a YAML file{several}')
    if path.removesuffix('.gz').endswith(_DATA_ENDINGS):
      raise Unreadable(
        f'{path} has the rows of a task; expected the YAML file that says '
        'what they mean, with name, files, inputs, targets and metrics '
        f'({_TASK_FILE})'
      )
  return setting


def name_in_task_file(path: str) -> str:
  """Returns the name of the task that a file defines, without checking it."""
  text = filesystem.read(path, filesystem.SETTINGS_BYTES)
  name = re.search(rb'^name:\s*[\'"]?(\w+)', text, re.M)
  if not name:
    raise Unreadable(f'{path} has no line `name: NAME` ({_TASK_FILE})')
  return name[1].decode()


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
    names = re.sub(rf'({self._folder}/)?(\w+)\.gin\b', r'\2', names)
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
