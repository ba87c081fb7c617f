"""Settings of the tasks: where the data is and how it is tokenized.

Flags override gin, which overrides environment variables `SYNTH_MTF_<NAME>`.
Settings are read when a task is used, not when it is registered, so that
importing `synth_mtf.tasks` opens no file.
"""

from __future__ import annotations

import configparser
import dataclasses
import fnmatch
import os
from collections.abc import Mapping
from typing import Any

import gin
from absl import flags

from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem

TFDS = 'tfds'
BYTES = 'bytes'
_TRUTHS = configparser.ConfigParser.BOOLEAN_STATES


@dataclasses.dataclass(frozen=True)
class Settings:
  """Resolved settings, which `settings` documents.

  A folder of None means TensorFlow Datasets. `task_data_dirs` holds pairs of a
  task name pattern and a folder; the first matching pattern wins.
  """

  data_dir: str | None = None
  task_data_dirs: tuple[tuple[str, str | None], ...] = ()
  vocabulary: str | None = None
  skip_bad_rows: bool = False
  index_dir: str | None = None
  word_vectors: str | None = None
  task_file: str | None = None
  cache_dir: str | None = None
  text: str | None = None

  def data_dir_of(self, task_name: str) -> str | None:
    """Returns the folder of `task_name`'s official files, or None for TFDS."""
    for pattern, folder in self.task_data_dirs:
      if fnmatch.fnmatchcase(task_name, pattern):
        return folder
    return self.data_dir

  def name_of_data_dir(self, task_name: str) -> str:
    """Returns the name of the setting that `data_dir_of` follows."""
    for pattern, _ in self.task_data_dirs:
      if fnmatch.fnmatchcase(task_name, pattern):
        return name_of('task_data_dirs')
    return name_of('data_dir')

  def has_samples(self, task_name: str) -> bool:
    """Whether the official files of a task are the generated samples."""
    with filesystem.named_by(self.name_of_data_dir(task_name)):
      return paths.holds_samples(self.data_dir_of(task_name))


def name_of(setting: str) -> str:
  """Returns the three names of a setting, for messages."""
  variable = f'SYNTH_MTF_{setting.upper()}'
  return f'--{setting} ({variable}, synth_mtf.tasks.settings.{setting})'


@gin.configurable(module='synth_mtf.tasks')
def settings(
  data_dir: str | None = None,
  task_data_dirs: str | Mapping[str, str] | None = None,
  vocabulary: str | None = None,
  skip_bad_rows: bool | None = None,
  index_dir: str | None = None,
  word_vectors: str | None = None,
  task_file: str | None = None,
  cache_dir: str | None = None,
  text: str | None = None,
) -> Settings:
  """Resolves each setting: flag, else gin, else environment variable.

  Args:
    data_dir: folder with the official files, such as `glue/CoLA/train.tsv`;
      TensorFlow Datasets if unset or `'tfds'`.
    task_data_dirs: folders for individual tasks, as a dict in gin and as
      `pattern=folder,pattern=folder` elsewhere. A pattern is a task name in
      which `*` matches anything; the folder `tfds` means TensorFlow Datasets.
    vocabulary: path of a SentencePiece `.model`, or `'bytes'`; if unset, T5's
      own 32k model from its bucket.
    skip_bad_rows: skip malformed rows and report their number; otherwise, the
      first use of a file with such rows is an error.
    index_dir: folder for cached row counts; if unset, the user's cache folder,
      `$XDG_CACHE_HOME/synth_mtf` or `~/.cache/synth_mtf`.
    word_vectors: word2vec or GloVe file; if unset, the embedding similarity of
      dialogues is not computed.
    task_file: YAML files that define tasks, separated by commas.
    cache_dir: folder or bucket of `synth-mtf cache`, which runs then read in
      place of the files.
    text: file or folder of text to pretrain on, which
      `synth_text_span_corruption` then reads in place of the data folder's
      `corpus/`.
  """
  return Settings(
    data_dir=_folder(_resolve('data_dir', data_dir)),
    task_data_dirs=_task_folders(_resolve('task_data_dirs', task_data_dirs)),
    vocabulary=_resolve('vocabulary', vocabulary),
    skip_bad_rows=_truth(_resolve('skip_bad_rows', skip_bad_rows)),
    index_dir=_folder(_resolve('index_dir', index_dir)),
    word_vectors=_resolve('word_vectors', word_vectors),
    task_file=_resolve('task_file', task_file),
    cache_dir=_folder(_resolve('cache_dir', cache_dir)),
    text=_folder(_resolve('text', text)),
  )


def define_flags() -> None:
  """Defines an absl flag for each setting; call it before flags are parsed."""
  for field in dataclasses.fields(Settings):
    if field.name in flags.FLAGS:
      continue
    boolean = field.name == 'skip_bad_rows'
    define_flag = flags.DEFINE_bool if boolean else flags.DEFINE_string
    define_flag(
      field.name,
      None,
      f'Overrides synth_mtf.tasks.settings.{field.name} and '
      f'SYNTH_MTF_{field.name.upper()}.',
      flag_values=flags.FLAGS,
    )


def _resolve(name: str, gin_value: Any) -> Any:
  """Returns the flag's value, else gin's, else the environment's."""
  value = gin_value
  if flags.FLAGS.is_parsed() and name in flags.FLAGS:
    value = flags.FLAGS.get_flag_value(name, gin_value)
  if value is None:
    value = os.environ.get(f'SYNTH_MTF_{name.upper()}') or None
  return value


def _truth(value: bool | str | None) -> bool:
  if not value:
    return False
  truth = _TRUTHS.get(str(value).lower())
  if truth is None:
    raise UserError(
      f'SYNTH_MTF_SKIP_BAD_ROWS is {value!r}; expected one of '
      f'{", ".join(_TRUTHS)}.'
    )
  return truth


def _folder(value: str | None) -> str | None:
  if not value or value == TFDS:
    return None
  return os.path.expanduser(value)


def _task_folders(
  value: str | Mapping[str, str] | None,
) -> tuple[tuple[str, str | None], ...]:
  if not value:
    return ()
  paths = _parsed_paths(value) if isinstance(value, str) else value
  return tuple((pattern, _folder(path)) for pattern, path in paths.items())


def _parsed_paths(text: str) -> dict[str, str]:
  """Parses `pattern=folder,pattern=folder`."""
  paths = {}
  for item in text.split(','):
    pattern, equals, path = item.strip().partition('=')
    if not equals:
      raise UserError(
        f'task_data_dirs has the item {item.strip()!r}; expected `task=folder` '
        'or `task=tfds`, separated by commas.'
      )
    paths[pattern] = path
  return paths
