"""seqio data sources: official files, and the choice between them and TFDS."""

from __future__ import annotations

import abc
import collections
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow.compat.v2 as tf
from absl import logging
from typing_extensions import override

from synth_mtf.errors import UserError
from synth_mtf.tasks import _files, _index, _settings
from synth_mtf.tasks._index import Block, FileIndex
from synth_mtf.tasks._readers import Example, Reader

# As many as seqio reads files at a time.
_CYCLE_LENGTH = 16
# Loads that are ready or under way: one in Python, one on its way to tf.data.
_LOADS_AHEAD = 2
# Splits of so few files and bytes stay in memory once they have been read: they
# are read in many epochs, each of which would start with a wait.
_KEPT_FILES = 16
_KEPT_BYTES = 8 << 20
# Memory for so many is set aside in each epoch.
_KEPT_ROWS = 1 << 12
# Rows of a file that is one block, such as a gzip file, handed over at a time.
_CHUNK_EXAMPLES = 256
# Open files that wait for their next chunk to be asked for.
_OPEN_FILES = 64
_CACHE_SHARD_BYTES = 64 << 20
# Above this a corpus is not counted, and checked by its first rows only.
LARGE_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True)
class Split:
  """The official files of one split.

  Attributes:
    readers: for each relative path, in which `*` and `**/` may stand for names
      and folders, the format of the files there. All of them count.
    otherwise: another spelling of the layout, used if none of these is there.
    optional: whether the split is absent, instead of an error, without files.
  """

  readers: Mapping[str, Reader]
  otherwise: Split | None = None
  optional: bool = False

  @classmethod
  def of(
    cls, patterns: Sequence[str], reader: Reader, optional: bool = False
  ) -> Split:
    """Returns the split of files of one format, spelled in several ways."""
    split = None
    for pattern in reversed(patterns):
      split = cls({pattern: reader}, split, optional)
    return split

  def files(self, data_dir: str) -> dict[str, Reader]:
    """Returns the reader of each file of the split, sorted, {} without any."""
    found = {
      path: reader
      for pattern, reader in self.readers.items()
      for path in _files.find(data_dir, pattern)
    }
    if not found and self.otherwise:
      return self.otherwise.files(data_dir)
    return dict(sorted(found.items()))

  @property
  def patterns(self) -> list[str]:
    """All relative paths, of this spelling and of the others."""
    rest = self.otherwise.patterns if self.otherwise else []
    return [*self.readers, *rest]


MEND = (
  'Mend the file, or set synth_mtf.tasks.settings.skip_bad_rows '
  '(SYNTH_MTF_SKIP_BAD_ROWS, --skip_bad_rows) to leave such rows out.'
)


class FilesDataSource(seqio.DataSource):
  """Rows of the official files in a folder.

  Every row is checked before the first example is handed out, where the format
  is scanned; an error then names each bad row. Blocks of rows are shuffled and
  sharded, so that neither needs more memory for a longer file.
  """

  def __init__(
    self, task_name: str, splits: Mapping[str, Split], data_dir: str
  ):
    super().__init__(splits=())
    self._task_name = task_name
    self._split_files = splits
    self._data_dir = data_dir

  @property
  def splits(self) -> Sequence[str]:
    """The splits that the task has; optional ones where a file is there."""
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
    """Returns a name for each 64 MB, the units of seqio's cache job."""
    shards = max(1, -(-_total_bytes(self.files(split)) // _CACHE_SHARD_BYTES))
    return [f'{self._task_name}-{split}-{i:05d}' for i in range(shards)]

  def num_input_examples(self, split: str) -> int | None:
    """Returns the number of examples; 0 for a split that the task has not.

    None for a corpus too large to be read only to be counted.
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
    """Returns the files of a split, {} if there are none."""
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
      wanted = ' or '.join(self._split_files[split].patterns)
      raise UserError(
        f'task {self._task_name}, split {split!r}: no file {wanted} in '
        f'{self._data_dir!r}. Put it there, or set '
        'synth_mtf.tasks.settings.data_dir (SYNTH_MTF_DATA_DIR, --data_dir) to '
        'the folder that has it.'
      )
    return files

  def indexes(self, split: str) -> list[FileIndex]:
    """Returns what one pass over each file of the split found."""
    index_dir = _settings.settings().index_dir
    return [
      _index.cached_scan(path, reader, index_dir)
      for path, reader in self.files(split).items()
    ]

  def faults(self, split: str) -> list[str]:
    """Returns what is wrong with the rows of a split, [] if nothing is."""
    if self._too_large(split):
      return _faults_of_first_rows(self.files(split))
    return [
      _files.describe_faults(index.faults, index.num_faults)
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
    skip_bad_rows = _settings.settings().skip_bad_rows
    files = self.files(split)
    blocks = self._blocks(split, skip_bad_rows)
    if not blocks:
      raise UserError(
        f'task {self._task_name}, split {split!r}: no rows in '
        f'{", ".join(files)}; expected at least one.'
      )
    return _dataset(blocks, files, skip_bad_rows, shuffle, seed, shard_info)

  def examples(self, split: str) -> Iterator[Example]:
    """Yields the rows of a split in order, as values of Python."""
    skip_bad_rows = _settings.settings().skip_bad_rows
    blocks = self._blocks(split, skip_bad_rows)
    loader = _BlockLoader(blocks, self.files(split), skip_bad_rows)
    for number in range(len(blocks)):
      yield from loader.read(number)

  def _blocks(self, split: str, skip_bad_rows: bool) -> list[Block]:
    files = self.files(split)
    if _scanned(files):
      return self._checked_blocks(split, skip_bad_rows)
    return [block for path in files for block in _index.byte_blocks(path)]

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
          _files.describe_faults(index.faults, index.num_faults),
        )
    if not sum(index.num_examples for index in indexes):
      return []
    return [block for index in indexes for block in index.blocks]

  def _too_large(self, split: str) -> bool:
    files = self.files(split)
    return not _scanned(files) and _total_bytes(files) > LARGE_BYTES


class TwoSources(seqio.DataSource):
  """Official files where a folder is set, TensorFlow Datasets where none is.

  The choice is made at each use, so that a task is defined once and before the
  settings are known.
  """

  def __init__(
    self,
    task_name: str,
    files: Mapping[str, Split],
    tfds: seqio.TfdsDataSource | None,
  ):
    super().__init__(splits=())
    self._task_name = task_name
    self._split_files = files
    self._tfds = tfds

  @property
  def chosen(self) -> FilesDataSource | seqio.TfdsDataSource:
    """The source that the settings in force name."""
    data_dir = _settings.settings().data_dir_of(self._task_name)
    if data_dir is not None:
      return FilesDataSource(self._task_name, self._split_files, data_dir)
    if self._tfds is None:
      raise UserError(
        f'task {self._task_name} is not in TensorFlow Datasets; set '
        'synth_mtf.tasks.settings.data_dir (SYNTH_MTF_DATA_DIR, --data_dir) to '
        'a folder with its files: '
        + ', '.join(split.patterns[0] for split in self._split_files.values())
      )
    return self._tfds

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
    """Returns the row count of the chosen source; 0 without the split."""
    if split not in self.splits:
      return 0
    return self.chosen.num_input_examples(split)

  def get_dataset(self, split: str = 'train', **kwargs: Any) -> tf.data.Dataset:
    """Returns the rows of the chosen source."""
    return self.chosen.get_dataset(split=split, **kwargs)


def _total_bytes(files: Iterable[str]) -> int:
  return sum(tf.io.gfile.stat(path).length for path in files)


def _scanned(files: Mapping[str, Reader]) -> bool:
  return all(reader.scanned for reader in files.values())


def _faults_of_first_rows(files: Mapping[str, Reader]) -> list[str]:
  faults = []
  for path, reader in files.items():
    try:
      for block in _index.byte_blocks(path)[:1]:
        header = _index.header_of(path, reader)
        rows = _index.read(block, reader, False, header)
        collections.deque(itertools.islice(rows, _CHUNK_EXAMPLES), maxlen=0)
    except UserError as error:
      faults.append(str(error))
  return faults


def _dataset(
  blocks: Sequence[Block],
  readers: Mapping[str, Reader],
  skip_bad_rows: bool,
  shuffle: bool,
  seed: int | None,
  shard_info: seqio.ShardInfo | None,
) -> tf.data.Dataset:
  """Returns the examples of all blocks, in order or shuffled by block."""
  # A block without a known end, such as a gzip file, is read bit by bit.
  bounded = [block for block in blocks if block.end is not None]
  endless = [block for block in blocks if block.end is None]
  parts = []
  if bounded:
    loader = _BlockLoader(bounded, readers, skip_bad_rows)
    parts.append(_examples(loader, shuffle, seed, shard_info))
  if endless:
    loader = _StreamLoader(endless, readers, skip_bad_rows)
    parts.append(_examples(loader, shuffle, seed, shard_info))
  if len(parts) == 1:
    return parts[0]
  if not shuffle:
    return parts[0].concatenate(parts[1])
  sizes = [_total_bytes({b.path for b in part}) for part in (bounded, endless)]
  return tf.data.Dataset.sample_from_datasets(
    parts, [size / sum(sizes) for size in sizes], seed=seed
  )


def _examples(
  loader: _Loader,
  shuffle: bool,
  seed: int | None,
  shard_info: seqio.ShardInfo | None,
) -> tf.data.Dataset:
  num_blocks = len(loader.blocks)
  num_shards = shard_info.num_shards if shard_info else 1
  index = shard_info.index if shard_info else 0
  small = loader.is_small()
  by_rows = small or num_blocks < num_shards
  ds = tf.data.Dataset.range(num_blocks)
  if not by_rows:
    ds = ds.shard(num_shards, index)
  # Rows are not dealt out behind a shuffle: without a seed it differs from host
  # to host.
  if shuffle and (num_shards == 1 or not by_rows):
    ds = ds.shuffle(num_blocks, seed=seed)
  ds = loader.columns(ds, shuffle).unbatch()
  if by_rows:
    ds = ds.shard(num_shards, index)
  if any(isinstance(s, tf.RaggedTensorSpec) for s in _specs(ds)):
    # What enters the function is ragged, though of rank 1; what leaves is not.
    ds = ds.map(lambda row: row)
  if small:
    ds = ds.cache()
    if shuffle:
      ds = ds.shuffle(_KEPT_ROWS, seed=seed)
  return ds


def _specs(ds: tf.data.Dataset) -> list[tf.TypeSpec]:
  return tf.nest.flatten(ds.element_spec)


class _Loader(abc.ABC):
  """Hands blocks to tf.data as columns: tensors with a row for each example.

  A column of lists is ragged.

  Attributes:
    blocks: what is loaded.
  """

  def __init__(
    self,
    blocks: Sequence[Block],
    readers: Mapping[str, Reader],
    skip_bad_rows: bool,
  ):
    self.blocks = blocks
    self._readers = readers
    self._skip_bad_rows = skip_bad_rows
    self._schema = next(iter(readers.values())).schema
    self._headers: dict[str, Any] = {}

  @abc.abstractmethod
  def columns(self, blocks: tf.data.Dataset, mixed: bool) -> tf.data.Dataset:
    """Returns the columns of the blocks whose numbers `blocks` yields.

    Args:
      blocks: numbers of blocks.
      mixed: whether rows of several blocks alternate.
    """

  def is_small(self) -> bool:
    """Whether all of the files fit into memory with ease."""
    files = [
      file
      for path, reader in self._readers.items()
      for file in reader.files(path)
    ]
    return len(files) <= _KEPT_FILES and _total_bytes(files) <= _KEPT_BYTES

  def read(self, block: int) -> Iterator[Example]:
    """Yields the examples of a block."""
    path = self.blocks[block].path
    reader = self._readers[path]
    if path not in self._headers:
      self._headers[path] = _index.header_of(path, reader)
    return _index.read(
      self.blocks[block], reader, self._skip_bad_rows, self._headers[path]
    )

  def call(
    self, function: Callable[..., Sequence[Example]], *inputs: tf.Tensor
  ) -> Mapping[str, Any]:
    """Returns the columns of the examples that `function(*inputs)` returns."""
    dtypes = []
    for _, spec in _leaves(self._schema):
      dtypes += [spec.dtype, tf.int64] if spec.shape.rank else [spec.dtype]
    arrays = tf.numpy_function(
      lambda *values: self._to_arrays(function(*(v.tolist() for v in values))),
      inputs,
      dtypes,
      stateful=False,
    )
    for array in arrays:
      array.set_shape([None])
    arrays = iter(arrays)
    columns = [
      tf.RaggedTensor.from_row_splits(
        next(arrays), next(arrays), validate=False
      )
      if spec.shape.rank
      else next(arrays)
      for _, spec in _leaves(self._schema)
    ]
    return tf.nest.pack_sequence_as(self._schema, columns)

  def _to_arrays(self, rows: Sequence[Example]) -> list[np.ndarray]:
    """Returns values, and where lists among them start and end."""
    arrays = []
    for path, spec in _leaves(self._schema):
      values = rows
      for key in path:
        values = [value[key] for value in values]
      if spec.shape.rank:
        sizes = [0, *map(len, values)]
        values = [value for several in values for value in several]
        arrays.append(_array(values, spec.dtype))
        arrays.append(np.cumsum(sizes, dtype=np.int64))
      else:
        arrays.append(_array(values, spec.dtype))
    return arrays


class _BlockLoader(_Loader):
  """Loads some blocks in one call."""

  @override
  def columns(self, blocks: tf.data.Dataset, mixed: bool) -> tf.data.Dataset:
    load = self._load_mixed if mixed else self._load
    return blocks.batch(_CYCLE_LENGTH).map(
      lambda numbers: self.call(load, numbers),
      num_parallel_calls=_LOADS_AHEAD,
    )

  def _load(self, blocks: Sequence[int]) -> list[Example]:
    return [row for block in blocks for row in self.read(block)]

  def _load_mixed(self, blocks: Sequence[int]) -> list[Example]:
    rounds = itertools.zip_longest(*map(self.read, blocks))
    return [row for rows in rounds for row in rows if row is not None]


class _StreamLoader(_Loader):
  """Loads a file of unknown length some rows at a time."""

  def __init__(self, *args: Any):
    super().__init__(*args)
    self._lock = threading.Lock()
    # (block, next chunk) -> the examples that follow.
    self._waiting: collections.OrderedDict[
      tuple[int, int], Iterator[Example]
    ] = collections.OrderedDict()

  @override
  def columns(self, blocks: tf.data.Dataset, mixed: bool) -> tf.data.Dataset:
    together = _CYCLE_LENGTH if mixed else 1

    def chunks(block: tf.Tensor) -> tf.data.Dataset:
      ds = tf.data.Dataset.range(tf.int64.max)
      ds = ds.map(lambda chunk: self.call(self._load, block, chunk))
      return ds.take_while(
        lambda columns: tf.size(tf.nest.flatten(columns)[0]) > 0
      )

    return blocks.interleave(
      chunks,
      cycle_length=together,
      block_length=1,
      num_parallel_calls=min(_LOADS_AHEAD, together),
      deterministic=True,
    )

  def _load(self, block: int, chunk: int) -> list[Example]:
    examples = self._examples(block, chunk)
    rows = list(itertools.islice(examples, _CHUNK_EXAMPLES))
    if rows:
      self._wait(block, chunk + 1, examples)
    return rows

  def _examples(self, block: int, chunk: int) -> Iterator[Example]:
    with self._lock:
      examples = self._waiting.pop((block, chunk), None)
    if examples is None:
      examples = self.read(block)
      # A restored iterator goes on where the saved one was.
      passed = itertools.islice(examples, chunk * _CHUNK_EXAMPLES)
      collections.deque(passed, maxlen=0)
    return examples

  def _wait(self, block: int, chunk: int, examples: Iterator[Example]) -> None:
    with self._lock:
      self._waiting[block, chunk] = examples
      while len(self._waiting) > _OPEN_FILES:
        self._waiting.popitem(last=False)


def _leaves(
  schema: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tf.TensorSpec]]:
  """Yields (path, spec) in tf.nest's order: sorted by key."""
  for key in sorted(schema):
    if isinstance(schema[key], Mapping):
      yield from _leaves(schema[key], (*path, key))
    else:
      yield (*path, key), schema[key]


def _array(values: Sequence[Any], dtype: tf.DType) -> np.ndarray:
  if dtype == tf.string:
    return np.array([value.encode('utf-8') for value in values], object)
  return np.array(values, dtype.as_numpy_dtype)
