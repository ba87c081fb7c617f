"""seqio data sources: official files, and the choice between them and TFDS."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings
from synth_mtf.tasks.files import index, storage
from synth_mtf.tasks.files.dataset import Rows
from synth_mtf.tasks.files.formats import Example, Reader
from synth_mtf.tasks.files.index import FileIndex, Part

_CACHE_SHARD_BYTES = 64 << 20
# Of a file that has no index, lines are read in parts of about a megabyte.
_PART_BYTES = 1 << 20
# Text larger than this is not counted, and only its first rows are checked.
_LARGE_BYTES = 256 << 20
_FIRST_ROWS = 256
_SET_DATA_DIR = (
  'synth_mtf.tasks.settings.data_dir (SYNTH_MTF_DATA_DIR, --data_dir)'
)

FIX = (
  'Fix the file, or set synth_mtf.tasks.settings.skip_bad_rows '
  '(SYNTH_MTF_SKIP_BAD_ROWS, --skip_bad_rows) to leave such rows out.'
)


@dataclasses.dataclass(frozen=True)
class Split:
  """The official files of one split.

  Attributes:
    layouts: spellings of the layout, of which the first with files is used.
      Each has the format of the files at relative paths, in which `*` and `**/`
      may stand for names and folders.
    optional: whether the split is absent, instead of an error, without files.
  """

  layouts: Sequence[Mapping[str, Reader]]
  optional: bool = False

  @classmethod
  def of(
    cls, patterns: Sequence[str], reader: Reader, optional: bool = False
  ) -> Split:
    """Returns the split of files of one format, spelled in several ways."""
    return cls([{pattern: reader} for pattern in patterns], optional)

  def files(self, data_dir: str) -> dict[str, Reader]:
    """Returns the reader of each file of the split, sorted; {} if none."""
    for layout in self.layouts:
      found = {
        path: reader
        for pattern, reader in layout.items()
        for path in storage.find(data_dir, pattern)
      }
      if found:
        return dict(sorted(found.items()))
    return {}

  @property
  def patterns(self) -> list[str]:
    """All relative paths, of all spellings."""
    return [pattern for layout in self.layouts for pattern in layout]


class FilesDataSource(seqio.DataSource):
  """Rows of the official files in a folder.

  Every row of an indexed format is checked before the first example is handed
  out, and an error names each bad row. Parts of files are shuffled and sharded,
  so that neither needs more memory for a longer file.
  """

  supports_arbitrary_sharding = True

  def __init__(
    self, task_name: str, splits: Mapping[str, Split], data_dir: str
  ) -> None:
    super().__init__(splits=())
    self.task_name = task_name
    self._split_files = splits
    self._data_dir = data_dir
    self._found: dict[str, dict[str, Reader]] = {}

  @property
  def splits(self) -> Sequence[str]:
    """The splits that the task has; optional ones only if they have a file."""
    return tuple(
      name
      for name, split in self._split_files.items()
      if not split.optional or self.found(name)
    )

  def list_shards(self, split: str) -> Sequence[str]:
    """Returns a name for each 64 MB, the unit of seqio's cache job."""
    size = storage.total_bytes(self.files(split))
    shards = max(1, -(-size // _CACHE_SHARD_BYTES))
    return [f'{self.task_name}-{split}-{i:05d}' for i in range(shards)]

  def num_input_examples(self, split: str) -> int | None:
    """Returns the number of examples; None for text too large to be counted."""
    if split not in self.splits:
      return 0
    if self._too_large(split):
      return None
    return sum(index.num_examples for index in self.indexes(split))

  def found(self, split: str) -> dict[str, Reader]:
    """Returns the files of a split, which are looked for once; {} if none."""
    if split not in self._found and split in self._split_files:
      self._found[split] = self._split_files[split].files(self._data_dir)
    return self._found.get(split, {})

  def files(self, split: str) -> dict[str, Reader]:
    """Returns the files of a split; a UserError says which are missing."""
    if split not in self._split_files:
      raise UserError(
        f'task {self.task_name} has no split {split!r}; expected one of '
        f'{", ".join(self._split_files)}.'
      )
    if not self.found(split):
      raise UserError(
        f'task {self.task_name}, split {split!r}: {self.missing(split)}'
      )
    return self.found(split)

  def missing(self, split: str) -> str:
    """Returns what to do if none of the files of a split exists."""
    wanted = ' or '.join(self._split_files[split].patterns)
    return (
      f'no file {wanted} in {self._data_dir!r}. Put it there, or set '
      f'{_SET_DATA_DIR} to the folder that has it.'
    )

  def indexes(self, split: str) -> list[FileIndex]:
    """Returns what one pass over each file of the split found."""
    index_dir = data_settings.settings().index_dir
    return [
      index.of_file(path, reader, index_dir)
      for path, reader in self.files(split).items()
    ]

  def faults(self, split: str) -> list[str]:
    """Returns what is wrong with the rows of a split, for each file."""
    if self._too_large(split):
      return self._faults_of_first_rows(split)
    return [f.describe_faults() for f in self.indexes(split) if f.num_faults]

  def no_rows(self, split: str) -> str:
    """Returns the message about a split without any example."""
    return (
      f'task {self.task_name}, split {split!r}: no rows in '
      f'{", ".join(self.files(split))}; expected at least one.'
    )

  def get_dataset(
    self,
    split: str = 'train',
    shuffle: bool = True,
    seed: int | None = None,
    shard_info: seqio.ShardInfo | None = None,
    **unused_kwargs: Any,
  ) -> tf.data.Dataset:
    """Returns the rows of a split in the structure of its reader's schema."""
    return self._rows(split).dataset(shuffle, seed, shard_info)

  def examples(self, split: str) -> Iterator[Example]:
    """Yields the rows of a split in order, as values of Python."""
    rows = self._rows(split)
    for number in range(len(rows.parts)):
      yield from rows.examples(number)

  def _rows(self, split: str) -> Rows:
    files = self.files(split)
    skip_bad_rows = data_settings.settings().skip_bad_rows
    if self._is_indexed(split):
      parts = self._checked_parts(split, skip_bad_rows)
    else:
      parts = [part for path in files for part in _parts_by_size(path)]
    if not parts:
      raise UserError(self.no_rows(split))
    return Rows(parts, files, skip_bad_rows)

  def _checked_parts(self, split: str, skip_bad_rows: bool) -> list[Part]:
    indexes = self.indexes(split)
    faults = self.faults(split)
    if faults and not skip_bad_rows:
      raise UserError('\n'.join([*faults, FIX]))
    for found in indexes:
      for note in found.notes:
        logging.warning('%s', note)
      if found.num_faults:
        logging.warning(
          '%s: %d faults; bad rows are skipped and %d examples remain:\n%s',
          found.path,
          found.num_faults,
          found.num_examples,
          found.describe_faults(),
        )
    if not any(found.num_examples for found in indexes):
      return []
    return [part for found in indexes for part in found.parts]

  def _faults_of_first_rows(self, split: str) -> list[str]:
    faults = []
    for path, reader in self.files(split).items():
      try:
        rows = Rows(_parts_by_size(path)[:1], {path: reader}, False)
        first = itertools.islice(rows.examples(0), _FIRST_ROWS)
        collections.deque(first, maxlen=0)
      except UserError as error:
        faults.append(str(error))
    return faults

  def _is_indexed(self, split: str) -> bool:
    return all(reader.indexed for reader in self.files(split).values())

  def _too_large(self, split: str) -> bool:
    return (
      not self._is_indexed(split)
      and storage.total_bytes(self.files(split)) > _LARGE_BYTES
    )


def _parts_by_size(path: str) -> list[Part]:
  """Divides a file without an index; its reader moves to the next line."""
  if storage.is_gzip(path):
    return [Part(path, 0, None, 0)]
  size = storage.total_bytes([path])
  starts = range(0, size, _PART_BYTES)
  return [Part(path, s, min(s + _PART_BYTES, size), 0) for s in starts]


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
        f'{_SET_DATA_DIR} to a folder with its files: '
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
    chosen = self.chosen
    return chosen.num_input_examples(split) if split in chosen.splits else 0

  def get_dataset(self, split: str = 'train', **kwargs: Any) -> tf.data.Dataset:
    """Returns the rows of the chosen source."""
    return self.chosen.get_dataset(split=split, **kwargs)
