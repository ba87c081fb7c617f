"""seqio data sources: official files, and the choice between them and TFDS."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings
from synth_mtf.tasks.files import blocks as rows_of
from synth_mtf.tasks.files import loading, scanning, streams
from synth_mtf.tasks.files.blocks import Block
from synth_mtf.tasks.files.formats import Example, Reader
from synth_mtf.tasks.files.scanning import FileIndex

_CACHE_SHARD_BYTES = 64 << 20
# A corpus larger than this is not counted, and only its first rows are checked.
LARGE_BYTES = 256 << 20
_FIRST_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Split:
  """The official files of one split.

  Attributes:
    readers: the format of the files at each relative path, in which `*` and
      `**/` may stand for names and folders. All of these files count.
    otherwise: another spelling of the layout, used if none of these is there.
    optional: whether the split is absent, instead of an error, without files.
    choose: of the files that are found, returns those that are read.
  """

  readers: Mapping[str, Reader]
  otherwise: Split | None = None
  optional: bool = False
  choose: Callable[[Sequence[str]], list[str]] = list

  @classmethod
  def of(
    cls,
    patterns: Sequence[str],
    reader: Reader,
    optional: bool = False,
    choose: Callable[[Sequence[str]], list[str]] = list,
  ) -> Split:
    """Returns the split of files of one format, spelled in several ways."""
    *others, last = patterns
    split = cls({last: reader}, None, optional, choose)
    for pattern in reversed(others):
      split = cls({pattern: reader}, split, optional, choose)
    return split

  def files(self, data_dir: str) -> dict[str, Reader]:
    """Returns the reader of each file of the split, sorted; {} if none."""
    found = {
      path: reader
      for pattern, reader in self.readers.items()
      for path in streams.find(data_dir, pattern)
    }
    if not found and self.otherwise:
      return self.otherwise.files(data_dir)
    chosen = self.choose(sorted(found))
    others = sorted(found.keys() - chosen)
    if others:
      _tell_once(
        f'{", ".join(chosen)}: read; other forms of the same text are left '
        f'out: {", ".join(others)}'
      )
    return {path: found[path] for path in chosen}

  @property
  def patterns(self) -> list[str]:
    """All relative paths, of this spelling and of the others."""
    rest = self.otherwise.patterns if self.otherwise else []
    return [*self.readers, *rest]


@functools.cache
def _tell_once(message: str) -> None:
  logging.warning('%s', message)


MEND = (
  'Mend the file, or set synth_mtf.tasks.settings.skip_bad_rows '
  '(SYNTH_MTF_SKIP_BAD_ROWS, --skip_bad_rows) to leave such rows out.'
)


class FilesDataSource(seqio.DataSource):
  """Rows of the official files in a folder.

  If the format is scanned, every row is checked before the first example is
  handed out, and an error names each bad row. Blocks of rows are shuffled and
  sharded, so that neither needs more memory for a longer file.
  """

  def __init__(
    self, task_name: str, splits: Mapping[str, Split], data_dir: str
  ) -> None:
    super().__init__(splits=())
    self._task_name = task_name
    self._split_files = splits
    self._data_dir = data_dir

  @property
  def splits(self) -> Sequence[str]:
    """The splits that the task has; optional ones only if they have a file."""
    return tuple(
      name
      for name, split in self._split_files.items()
      if not split.optional or split.files(self._data_dir)
    )

  @property
  def supports_arbitrary_sharding(self) -> bool:
    """True: a file is dealt out in blocks or, if it is short, in rows."""
    return True

  def list_shards(self, split: str) -> Sequence[str]:
    """Returns a name for each 64 MB, the unit of seqio's cache job."""
    shards = max(
      1, -(-streams.total_bytes(self.files(split)) // _CACHE_SHARD_BYTES)
    )
    return [f'{self._task_name}-{split}-{i:05d}' for i in range(shards)]

  def num_input_examples(self, split: str) -> int | None:
    """Returns the number of examples; 0 for a split that is not the task's.

    None for a corpus that is too large to be read just for counting.
    """
    if split not in self.splits:
      return 0
    if self._too_large(split):
      return None
    return sum(index.num_examples for index in self.indexes(split))

  @property
  def task_name(self) -> str:
    """The name of the task."""
    return self._task_name

  def found(self, split: str) -> dict[str, Reader]:
    """Returns the files of a split; {} if there are none."""
    if split not in self._split_files:
      return {}
    return self._split_files[split].files(self._data_dir)

  def files(self, split: str) -> dict[str, Reader]:
    """Returns the files of a split; a UserError says which are missing."""
    if split not in self._split_files:
      raise UserError(
        f'task {self._task_name} has no split {split!r}; expected one of '
        f'{", ".join(self._split_files)}.'
      )
    files = self._split_files[split].files(self._data_dir)
    if not files:
      raise UserError(
        f'task {self._task_name}, split {split!r}: {self.missing(split)}'
      )
    return files

  def missing(self, split: str) -> str:
    """Returns what to do where none of the files of a split is there."""
    wanted = ' or '.join(self._split_files[split].patterns)
    return (
      f'no file {wanted} in {self._data_dir!r}. Put it there, or set '
      'synth_mtf.tasks.settings.data_dir (SYNTH_MTF_DATA_DIR, --data_dir) to '
      'the folder that has it.'
    )

  def indexes(self, split: str) -> list[FileIndex]:
    """Returns what one pass over each file of the split found."""
    index_dir = data_settings.settings().index_dir
    return [
      scanning.cached_scan(path, reader, index_dir)
      for path, reader in self.files(split).items()
    ]

  def faults(self, split: str) -> list[str]:
    """Returns what is wrong with the rows of a split; [] if nothing is."""
    if self._too_large(split):
      return _faults_of_first_rows(self.files(split))
    return [
      scanning.describe_faults(index.faults, index.num_faults)
      for index in self.indexes(split)
      if index.num_faults
    ]

  def get_dataset(
    self,
    split: str = 'train',
    shuffle: bool = True,
    seed: int | None = None,
    shard_info: seqio.ShardInfo | None = None,
    **unused_kwargs: Any,
  ) -> tf.data.Dataset:
    """Returns the rows of a split in the structure of its reader's schema."""
    skip_bad_rows = data_settings.settings().skip_bad_rows
    files = self.files(split)
    blocks = self._blocks(split, skip_bad_rows)
    if not blocks:
      raise UserError(
        f'task {self._task_name}, split {split!r}: no rows in '
        f'{", ".join(files)}; expected at least one.'
      )
    return loading.dataset(
      blocks, files, skip_bad_rows, shuffle, seed, shard_info
    )

  def examples(self, split: str) -> Iterator[Example]:
    """Yields the rows of a split in order, as values of Python."""
    skip_bad_rows = data_settings.settings().skip_bad_rows
    blocks = self._blocks(split, skip_bad_rows)
    loader = loading.BlockLoader(blocks, self.files(split), skip_bad_rows)
    for number in range(len(blocks)):
      yield from loader.read(number)

  def _blocks(self, split: str, skip_bad_rows: bool) -> list[Block]:
    files = self.files(split)
    if _scanned(files):
      return self._checked_blocks(split, skip_bad_rows)
    return [block for path in files for block in rows_of.byte_blocks(path)]

  def _checked_blocks(self, split: str, skip_bad_rows: bool) -> list[Block]:
    indexes = self.indexes(split)
    faults = self.faults(split)
    if faults and not skip_bad_rows:
      raise UserError('\n'.join(faults) + '\n' + MEND)
    for index in indexes:
      for note in index.notes:
        logging.warning('%s', note)
      if index.num_faults:
        logging.warning(
          '%s: %d faults; bad rows are skipped and %d examples remain:\n%s',
          index.path,
          index.num_faults,
          index.num_examples,
          scanning.describe_faults(index.faults, index.num_faults),
        )
    if not sum(index.num_examples for index in indexes):
      return []
    return [block for index in indexes for block in index.blocks]

  def _too_large(self, split: str) -> bool:
    files = self.files(split)
    return not _scanned(files) and streams.total_bytes(files) > LARGE_BYTES


class TwoSources(seqio.DataSource):
  """Official files if a folder is set, TensorFlow Datasets otherwise.

  The choice is made at each use, so that a task is defined once and before the
  settings are known.

  Attributes:
    split_files: the official files of each split.
    tfds: the dataset of TensorFlow Datasets, None where there is none.
  """

  def __init__(
    self,
    task_name: str,
    files: Mapping[str, Split],
    tfds: seqio.TfdsDataSource | None,
  ) -> None:
    super().__init__(splits=())
    self._task_name = task_name
    self.split_files = files
    self.tfds = tfds

  @property
  def chosen(self) -> FilesDataSource | seqio.TfdsDataSource:
    """The source that the settings in force name."""
    data_dir = data_settings.settings().data_dir_of(self._task_name)
    if data_dir is not None:
      return FilesDataSource(self._task_name, self.split_files, data_dir)
    if self.tfds is None:
      raise UserError(
        f'task {self._task_name} is not in TensorFlow Datasets; set '
        'synth_mtf.tasks.settings.data_dir (SYNTH_MTF_DATA_DIR, --data_dir) to '
        'a folder with its files: '
        + ', '.join(split.patterns[0] for split in self.split_files.values())
      )
    return self.tfds

  @property
  def splits(self) -> Sequence[str]:
    """The splits of the chosen source."""
    return tuple(self.chosen.splits)

  @property
  def supports_arbitrary_sharding(self) -> bool:
    """Whether the chosen source can be sharded at will."""
    return self.chosen.supports_arbitrary_sharding

  def list_shards(self, split: str) -> Sequence[str]:
    """Returns the shards of the chosen source."""
    return self.chosen.list_shards(split)

  def num_input_examples(self, split: str) -> int | None:
    """Returns the chosen source's number of examples; 0 without the split."""
    if split not in self.splits:
      return 0
    return self.chosen.num_input_examples(split)

  def get_dataset(self, split: str = 'train', **kwargs: Any) -> tf.data.Dataset:
    """Returns the rows of the chosen source."""
    return self.chosen.get_dataset(split=split, **kwargs)


def _scanned(files: Mapping[str, Reader]) -> bool:
  return all(reader.scanned for reader in files.values())


def _faults_of_first_rows(files: Mapping[str, Reader]) -> list[str]:
  faults = []
  for path, reader in files.items():
    try:
      for block in rows_of.byte_blocks(path)[:1]:
        header = rows_of.header_of(path, reader)
        rows = rows_of.read(block, reader, False, header)
        collections.deque(itertools.islice(rows, _FIRST_ROWS), maxlen=0)
    except UserError as error:
      faults.append(str(error))
  return faults
