"""What is known about a file after one pass: rows, blocks, faults.

A block is a run of records that can be read on its own. Blocks are what is
shuffled, and what is dealt out to hosts and workers, so that a file of any size
streams. The pass happens once: its result is kept as a small JSON file and
used as long as the file stays as it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.tasks import _files
from synth_mtf.tasks._files import ByteStream, Position, Record, RowError
from synth_mtf.tasks._readers import (
  DroppedRow,
  Example,
  Reader,
)

# Examples of a block. A short file has small ones, so that a shuffle of blocks
# mixes it and its first rows come soon; in a long file they double, until they
# cost little to start, and there are never many of them for its length.
_FEWEST_EXAMPLES = 16
_MOST_EXAMPLES = 256
_MANY_BLOCKS = 1024
_BLOCK_BYTES = 1 << 20
_FAULTS_SHOWN = 20
_VERSION = 2
_END_BYTES = 1 << 16
_FILES_OPENED = 2


class Block(NamedTuple):
  """A run of records of one file.

  Attributes:
    path: the file.
    start: offset of the first record.
    end: offset at which no further record starts; None: the end of the file.
    number: how many records of the file precede the block.
  """

  path: str
  start: Position
  end: Position | None
  number: int


@dataclasses.dataclass
class FileIndex:
  """The result of one pass over a file.

  Attributes:
    path: the file.
    num_examples: how many examples its good rows make.
    blocks: all of its rows, the bad ones included, in order.
    faults: the first bad rows, one line of text each.
    num_faults: how many bad rows there are.
    notes: oddities that change nothing: what TFDS drops too.
  """

  path: str
  num_examples: int
  blocks: list[Block]
  faults: list[str]
  num_faults: int
  notes: list[str]


def scan(path: str, reader: Reader) -> FileIndex:
  """Reads every row of `path` once.

  Raises:
    UserError: the file cannot be read, or its header is not that of the format.
  """
  index = FileIndex(path, 0, [], [], 0, [])
  blemishes: set[str] = set()
  dropped = 0
  in_block = 0
  block_examples = _FEWEST_EXAMPLES

  def fault(error: RowError, offset: Position) -> None:
    index.num_faults += 1
    if len(index.faults) < _FAULTS_SHOWN:
      index.faults.append(locate(error, reader, path, offset))

  with reader.open(path) as stream:
    header = _header(stream, reader, path)
    context = _context(header, reader, path)
    blemish = header and reader.blemish(header)
    if blemish:
      blemishes.add(str(blemish))
      fault(blemish, 0)
    for number, record in enumerate(_records(stream, reader, None, fault)):
      if not index.blocks or in_block >= block_examples:
        many = len(index.blocks) >= _MANY_BLOCKS
        if many and block_examples < _MOST_EXAMPLES:
          del index.blocks[1::2]
          block_examples *= 2
        index.blocks.append(Block(path, record.offset, None, number))
        in_block = 0
      blemish = reader.blemish(record)
      if blemish and str(blemish) not in blemishes:
        blemishes.add(str(blemish))
        fault(blemish, record.offset)
      for example in _parse(reader, record, number, context):
        if not isinstance(example, RowError):
          in_block += 1
          index.num_examples += 1
        elif isinstance(example, DroppedRow) and dropped < reader.dropped_rows:
          dropped += 1
        else:
          fault(example, record.offset)
    size = stream.offset
  ends = [block.start for block in index.blocks[1:]] + [size]
  index.blocks = [b._replace(end=end) for b, end in zip(index.blocks, ends)]
  if dropped:
    index.notes.append(
      f'{path}: {dropped} broken rows of the official data are left out, as '
      'TensorFlow Datasets leaves them out.'
    )
  return index


def cached_scan(path: str, reader: Reader, index_dir: str | None) -> FileIndex:
  """Returns `scan(path, reader)`, kept from before if the file is as then."""
  cache = _cache_path(path, reader, index_dir)
  fingerprint = _fingerprint(reader.files(path))
  index = _load(cache, path, fingerprint)
  if index is None:
    index = scan(path, reader)
    _save(cache, fingerprint, index)
  return index


def byte_blocks(path: str) -> list[Block]:
  """Divides a file that is not scanned into blocks of about a megabyte."""
  if _files.is_gzip(path):
    return [Block(path, 0, None, 0)]
  size = tf.io.gfile.stat(path).length
  starts = range(0, size, _BLOCK_BYTES)
  return [Block(path, s, min(s + _BLOCK_BYTES, size), 0) for s in starts]


def header_of(path: str, reader: Reader) -> Any:
  """Returns what `reader` makes of the first line, None if that is a row.

  Raises:
    UserError: the file cannot be read, or its header is not that of the format.
  """
  if not reader.header:
    return None
  with reader.open(path) as stream:
    return _context(_header(stream, reader, path), reader, path)


def read(
  block: Block, reader: Reader, skip_bad_rows: bool, header: Any
) -> Iterator[Example]:
  """Yields the examples of a block.

  Args:
    block: where they are.
    reader: the format of the file.
    skip_bad_rows: leave malformed rows out, and report them.
    header: `header_of` the file.

  Raises:
    UserError: a row is malformed, and `skip_bad_rows` is not set.
  """
  with reader.open(block.path, _line_start(block, reader)) as stream:

    def fault(error: RowError, offset: Position) -> None:
      if isinstance(error, DroppedRow):
        return
      message = locate(error, reader, block.path, offset)
      if not skip_bad_rows:
        raise UserError(message) from error
      logging.log_first_n(
        logging.WARNING, 'skipped: %s', _FAULTS_SHOWN, message
      )

    records = _records(stream, reader, block.end, fault)
    for number, record in enumerate(records, block.number):
      for example in _parse(reader, record, number, header):
        if isinstance(example, RowError):
          fault(example, record.offset)
        else:
          yield example


def locate(error: RowError, reader: Reader, path: str, offset: Position) -> str:
  """Returns `file:line: what was found; what was expected`."""
  return f'{reader.place(path, offset, error.line)}: {error}'


def _header(stream: ByteStream, reader: Reader, path: str) -> Record | None:
  if not reader.header:
    return None
  record = Record(stream.readline(), 0)
  if not record.data:
    raise UserError(f'{path}:1: an empty file; expected a header and rows')
  return record


def _context(header: Record | None, reader: Reader, path: str) -> Any:
  if header is None:
    return None
  try:
    return reader.read_header(header)
  except RowError as error:
    # Leaving a row out would not mend this one.
    raise UserError(f'{path}:1: {error}') from error


def _records(
  stream: Any,
  reader: Reader,
  end: Position | None,
  fault: Callable[[RowError, Position], None],
) -> Iterator[Record]:
  try:
    yield from reader.records(stream, end)
  except RowError as error:
    fault(error, stream.offset)


def _parse(
  reader: Reader, record: Record, number: int, context: Any
) -> Sequence[Example | RowError]:
  try:
    return reader.parse(record, number, context)
  except RowError as error:
    return [error]


def _line_start(block: Block, reader: Reader) -> int:
  """Returns where the first line that starts inside the block starts."""
  if reader.scanned or not block.start:
    return block.start
  with reader.open(block.path, block.start - 1) as stream:
    stream.readline()
    return stream.offset


def _cache_path(path: str, reader: Reader, index_dir: str | None) -> str:
  folder = index_dir or os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'),
    'synth_mtf',
  )
  absolute = os.path.abspath(path) if _files.is_local(path) else path
  digest = hashlib.sha256(f'{absolute}\n{reader.key}'.encode()).hexdigest()
  return os.path.join(folder, f'{os.path.basename(path)}-{digest[:16]}.json')


def _fingerprint(paths: Sequence[str]) -> list[Any]:
  """Returns what changes when a file does: sizes, times, first, last bytes."""
  try:
    stats = [tf.io.gfile.stat(path) for path in paths]
    ends = [
      _ends(path, stat.length)
      for path, stat in zip(paths[:_FILES_OPENED], stats)
    ]
  except tf.errors.OpError as error:
    raise UserError(
      f'a data file cannot be read: {error.message}; check its permissions.'
    ) from error
  names = zlib.crc32('\n'.join(paths).encode('utf-8'))
  sizes = sum(stat.length for stat in stats)
  times = max((stat.mtime_nsec for stat in stats), default=0)
  return [_VERSION, len(paths), names, sizes, times, ends]


def _ends(path: str, size: int) -> list[int]:
  with tf.io.gfile.GFile(path, 'rb') as stream:
    first = stream.read(_END_BYTES)
    stream.seek(max(0, size - _END_BYTES))
    return [zlib.crc32(first), zlib.crc32(stream.read(_END_BYTES))]


def _load(
  cache: str, path: str, fingerprint: Sequence[Any]
) -> FileIndex | None:
  try:
    with tf.io.gfile.GFile(cache) as stream:
      stored = json.load(stream)
    if stored.pop('fingerprint') != list(fingerprint):
      return None
    stored['path'] = path
    stored['blocks'] = [Block(path, *block) for block in stored['blocks']]
    return FileIndex(**stored)
  except (OSError, ValueError, KeyError, TypeError, tf.errors.OpError):
    return None  # absent, or damaged: it is made again


def _save(cache: str, fingerprint: Sequence[Any], index: FileIndex) -> None:
  stored = dataclasses.asdict(index)
  stored['fingerprint'] = list(fingerprint)
  stored['blocks'] = [block[1:] for block in index.blocks]
  temporary = f'{cache}.{os.getpid()}.tmp'
  try:
    tf.io.gfile.makedirs(os.path.dirname(cache))
    with tf.io.gfile.GFile(temporary, 'w') as stream:
      json.dump(stored, stream)
    tf.io.gfile.rename(temporary, cache, overwrite=True)
  except (OSError, tf.errors.OpError) as error:
    logging.warning('row counts cannot be kept in %s: %s', cache, error)
