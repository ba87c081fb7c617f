"""Turns rows of files into a tf.data pipeline.

Rows are parsed by Python and cross into TensorFlow many at a time: one call for
each row would cost more than the row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.tasks.files import index, storage
from synth_mtf.tasks.files.formats import (
  DroppedRow,
  Example,
  Header,
  Oddity,
  Reader,
  RowError,
)
from synth_mtf.tasks.files.index import Part

_CYCLE_LENGTH = 16  # as many as seqio reads files at a time
_CHUNK_EXAMPLES = 256
# Splits of no more files and bytes than this stay in memory: each of their many
# epochs would otherwise begin with a wait.
_SMALL_FILES = 16
_SMALL_BYTES = 8 << 20
_SMALL_BUFFER = 1 << 12
_FAULTS_LOGGED = 20


class Rows:
  """The rows of some parts of files of one structure."""

  def __init__(
    self,
    parts: Sequence[Part],
    readers: Mapping[str, Reader],
    skip_bad_rows: bool,
  ) -> None:
    self.parts = parts
    self._readers = readers
    self._skip_bad_rows = skip_bad_rows
    self._headers: dict[str, Header] = {}
    self._faults = 0

  def examples(self, number: int) -> Iterator[Example]:
    """Yields the examples of a part; a UserError ends a run at a bad row."""
    part = self.parts[number]
    reader = self._readers[part.path]
    if part.path not in self._headers:
      self._headers[part.path] = reader.read_header(part.path)
    for record, items in index.read(reader, part, self._headers[part.path]):
      for item in items:
        if not isinstance(item, RowError):
          yield item
        elif not isinstance(item, (DroppedRow, Oddity)):
          self._report(reader, part.path, record.start, item)

  def _report(
    self, reader: Reader, path: str, start: Any, error: RowError
  ) -> None:
    # Faults of an indexed file have been reported already.
    quiet = reader.indexed or self._faults >= _FAULTS_LOGGED
    if self._skip_bad_rows and quiet:
      return
    self._faults += 1
    message = f'{reader.place(path, start, error)}: {error}'
    if not self._skip_bad_rows:
      raise UserError(message) from error
    logging.warning('skipped: %s', message)

  def dataset(
    self, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None
  ) -> tf.data.Dataset:
    """Returns the examples of all parts, in order or shuffled by part."""
    shards = shard_info or seqio.ShardInfo(0, 1)
    count = len(self.parts)
    files = [
      file
      for path, reader in self._readers.items()
      for file in reader.files(path)
    ]
    small = (
      len(files) <= _SMALL_FILES and storage.total_bytes(files) <= _SMALL_BYTES
    )
    by_rows = small or count < shards.num_shards
    ds = tf.data.Dataset.range(count)
    if not by_rows:
      ds = ds.shard(shards.num_shards, shards.index)
    # Rows are not divided after a shuffle, which without a seed differs from
    # host to host.
    if shuffle and (shards.num_shards == 1 or not by_rows):
      ds = ds.shuffle(count, seed=seed)
    ds = self._load(ds, mixed=shuffle)
    if by_rows:
      ds = ds.shard(shards.num_shards, shards.index)
    if small:
      ds = ds.cache()
      if shuffle:
        ds = ds.shuffle(_SMALL_BUFFER, seed=seed)
    return ds

  def _load(self, numbers: tf.data.Dataset, mixed: bool) -> tf.data.Dataset:
    """Returns the examples of parts, one after the other or mixed."""
    schema = next(iter(self._readers.values())).schema
    in_chunks = all(not spec.shape.rank for spec in tf.nest.flatten(schema))
    signature = schema
    if in_chunks:
      signature = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([None], spec.dtype), schema
      )

    def rows(numbers: Any) -> Iterator[Any]:
      parts = map(self.examples, numbers.tolist())
      examples = _in_turns(parts) if mixed else itertools.chain(*parts)
      return _chunks(examples) if in_chunks else examples

    def load(numbers: tf.Tensor) -> tf.data.Dataset:
      return tf.data.Dataset.from_generator(
        rows, output_signature=signature, args=(numbers,)
      )

    if any(storage.is_gzip(part.path) for part in self.parts):
      # Each part is a whole file, of which a chunk is read at a time.
      together = _CYCLE_LENGTH if mixed else 1
      ds = numbers.batch(1).interleave(
        load, together, block_length=1, num_parallel_calls=min(2, together)
      )
    else:
      ds = numbers.batch(_CYCLE_LENGTH).flat_map(load)
    ds = ds.prefetch(2)
    return ds.unbatch() if in_chunks else ds


def _in_turns(parts: Iterator[Iterator[Example]]) -> Iterator[Example]:
  rounds = itertools.zip_longest(*parts)
  return (row for rows in rounds for row in rows if row is not None)


def _chunks(examples: Iterator[Example]) -> Iterator[Any]:
  """Yields examples in columns, of many rows each."""
  while rows := list(itertools.islice(examples, _CHUNK_EXAMPLES)):
    yield tf.nest.map_structure(lambda *values: list(values), *rows)
