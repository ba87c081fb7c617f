"""Blocks: runs of records of a file that can be read on their own.

Blocks are what is shuffled and what is dealt out to hosts and workers, so that
a file of any size can be streamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.tasks.files import streams
from synth_mtf.tasks.files.formats import Example, Reader
from synth_mtf.tasks.files.rows import (
  DroppedRow,
  Oddity,
  Position,
  Record,
  RowError,
)

_BLOCK_BYTES = 1 << 20
_FAULTS_LOGGED = 20


class Block(NamedTuple):
  """A run of records of one file.

  Attributes:
    path: the file.
    start: offset of the first record.
    end: offset from which on no record starts; None: the end of the file.
    number: how many records of the file come before the block.
  """

  path: str
  start: Position
  end: Position | None
  number: int


def byte_blocks(path: str) -> list[Block]:
  """Divides an unscanned file into blocks of about a megabyte."""
  if streams.is_gzip(path):
    return [Block(path, 0, None, 0)]
  size = tf.io.gfile.stat(path).length
  starts = range(0, size, _BLOCK_BYTES)
  return [Block(path, s, min(s + _BLOCK_BYTES, size), 0) for s in starts]


def header_of(path: str, reader: Reader) -> Any:
  """Returns what `reader` makes of the first line; None if that is a row.

  Raises:
    UserError: the file cannot be read, or its header is not that of the format.
  """
  if not reader.header:
    return None
  with reader.open(path) as stream:
    return context_of(read_header(stream, reader, path), reader, path)


def read(
  block: Block, reader: Reader, skip_bad_rows: bool, header: Any
) -> Iterator[Example]:
  """Yields the examples of a block.

  Args:
    block: where the examples are.
    reader: the format of the file.
    skip_bad_rows: leave malformed rows out, and report them.
    header: the `header_of` the file.

  Raises:
    UserError: a row is malformed, and `skip_bad_rows` is not set.
  """
  with reader.open(block.path, _line_start(block, reader)) as stream:

    def fault(error: RowError, offset: Position) -> None:
      if isinstance(error, (DroppedRow, Oddity)):
        return
      message = locate(error, reader, block.path, offset)
      if not skip_bad_rows:
        raise UserError(message) from error
      logging.log_first_n(
        logging.WARNING, 'skipped: %s', _FAULTS_LOGGED, message
      )

    records = records_of(stream, reader, block.end, fault)
    for number, record in enumerate(records, block.number):
      for example in examples_of(reader, record, number, header):
        if isinstance(example, RowError):
          fault(example, record.offset)
        else:
          yield example


def locate(error: RowError, reader: Reader, path: str, offset: Position) -> str:
  """Returns `file:line: what was found; what was expected`."""
  return f'{reader.place(path, offset, error.line)}: {error}'


def read_header(stream: Any, reader: Reader, path: str) -> Record | None:
  """Reads the first line, if the format has a header."""
  if not reader.header:
    return None
  record = Record(stream.readline(), 0)
  if not record.data:
    raise UserError(f'{path}:1: an empty file; expected a header and rows')
  return record


def context_of(header: Record | None, reader: Reader, path: str) -> Any:
  """Returns what `reader` needs of a header to parse the rows below it."""
  if header is None:
    return None
  try:
    return reader.read_header(header)
  except RowError as error:
    # Leaving out a row would not mend this error.
    raise UserError(f'{path}:1: {error}') from error


def records_of(
  stream: Any,
  reader: Reader,
  end: Position | None,
  fault: Callable[[RowError, Position], None],
) -> Iterator[Record]:
  """Yields the records up to `end`; calls `fault` where none starts."""
  try:
    yield from reader.records(stream, end)
  except RowError as error:
    fault(error, stream.offset)


def examples_of(
  reader: Reader, record: Record, number: int, context: Any
) -> Sequence[Example | RowError]:
  """Returns the examples of a record, and what is wrong or odd with it."""
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
