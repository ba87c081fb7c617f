"""Loaders: from blocks of rows to a tf.data pipeline.

Rows are parsed by Python and cross into TensorFlow as columns, many at a time:
one call for each row would cost more than the row.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import seqio
import tensorflow.compat.v2 as tf
from typing_extensions import override

from synth_mtf.tasks.files import blocks as rows_of
from synth_mtf.tasks.files import streams
from synth_mtf.tasks.files.blocks import Block
from synth_mtf.tasks.files.formats import Example, Reader

# As many as seqio reads files at a time.
_CYCLE_LENGTH = 16
# Loads that are ready or under way: one in Python, one passing into tf.data.
_LOADS_AHEAD = 2
# Splits of no more files and bytes than this stay in memory once they have been
# read: they are read in many epochs, each of which would begin with a wait.
_KEPT_FILES = 16
_KEPT_BYTES = 8 << 20
# Memory for this many is set aside in each epoch.
_KEPT_ROWS = 1 << 12
# How many rows are handed over at a time of a file that is one block, such as a
# gzip file.
_CHUNK_EXAMPLES = 256
# How many open files may wait for their next chunk to be asked for.
_OPEN_FILES = 64


def dataset(
  blocks: Sequence[Block],
  readers: Mapping[str, Reader],
  skip_bad_rows: bool,
  shuffle: bool,
  seed: int | None,
  shard_info: seqio.ShardInfo | None,
) -> tf.data.Dataset:
  """Returns the examples of all blocks, in order or shuffled by block.

  Args:
    blocks: what is read.
    readers: by path, the format of each file.
    skip_bad_rows: leave malformed rows out, and report them.
    shuffle: whether the blocks come in random order, several at a time.
    seed: the seed of that order.
    shard_info: which part of the rows is wanted.
  """
  # A block without a known end, such as a gzip file, is read bit by bit.
  bounded = [block for block in blocks if block.end is not None]
  endless = [block for block in blocks if block.end is None]
  loaders: list[_Loader] = []
  if bounded:
    loaders.append(BlockLoader(bounded, readers, skip_bad_rows))
  if endless:
    loaders.append(_StreamLoader(endless, readers, skip_bad_rows))
  parts = [_examples(loader, shuffle, seed, shard_info) for loader in loaders]
  if len(parts) == 1:
    return parts[0]
  if not shuffle:
    return parts[0].concatenate(parts[1])
  sizes = [
    streams.total_bytes({b.path for b in part}) for part in (bounded, endless)
  ]
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
  # Rows are not dealt out after a shuffle, which without a seed differs from
  # host to host.
  if shuffle and (num_shards == 1 or not by_rows):
    ds = ds.shuffle(num_blocks, seed=seed)
  # A list is declared as a ragged tensor of rank 1 and no splits, which every
  # function of a pipeline gets as a plain tensor.
  ds = loader.columns(ds, shuffle).unbatch()
  if by_rows:
    ds = ds.shard(num_shards, index)
  if small:
    ds = ds.cache()
    if shuffle:
      ds = ds.shuffle(_KEPT_ROWS, seed=seed)
  return ds


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
  ) -> None:
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
    """Whether all of the files easily fit into memory."""
    files = [
      file
      for path, reader in self._readers.items()
      for file in reader.files(path)
    ]
    return (
      len(files) <= _KEPT_FILES and streams.total_bytes(files) <= _KEPT_BYTES
    )

  def read(self, block: int) -> Iterator[Example]:
    """Yields the examples of a block."""
    path = self.blocks[block].path
    reader = self._readers[path]
    if path not in self._headers:
      self._headers[path] = rows_of.header_of(path, reader)
    return rows_of.read(
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
      lambda *values: self.to_arrays(function(*(v.tolist() for v in values))),
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

  def to_arrays(self, rows: Sequence[Example]) -> list[npt.NDArray[Any]]:
    """Returns values, and where lists among them start and end."""
    arrays = []
    for path, spec in _leaves(self._schema):
      values: Sequence[Any] = rows
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


class BlockLoader(_Loader):
  """Loads some blocks in one call."""

  # Two parsing threads would take Python's lock from each other at every read,
  # and load fewer rows than one.
  _turn = threading.Lock()

  @override
  def columns(self, blocks: tf.data.Dataset, mixed: bool) -> tf.data.Dataset:
    load = self._load_mixed if mixed else self._load
    return blocks.batch(_CYCLE_LENGTH).map(
      lambda numbers: self.call(load, numbers),
      num_parallel_calls=_LOADS_AHEAD,
    )

  def _load(self, blocks: Sequence[int]) -> list[Example]:
    with self._alone():
      return [row for block in blocks for row in self.read(block)]

  def _load_mixed(self, blocks: Sequence[int]) -> list[Example]:
    with self._alone():
      rounds = itertools.zip_longest(*map(self.read, blocks))
      return [row for rows in rounds for row in rows if row is not None]

  def _alone(self) -> contextlib.AbstractContextManager[Any]:
    """Holds other loads back, unless a network makes this one wait."""
    if all(map(streams.is_local, self._readers)):
      return self._turn
    return contextlib.nullcontext()


class _StreamLoader(_Loader):
  """Loads a file of unknown length a few rows at a time."""

  def __init__(self, *args: Any) -> None:
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
      # A restored iterator goes on from where the saved one was.
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


def _array(values: Sequence[Any], dtype: tf.DType) -> npt.NDArray[Any]:
  if dtype == tf.string:
    return np.array([value.encode('utf-8') for value in values], object)
  return np.array(values, dtype.as_numpy_dtype)
