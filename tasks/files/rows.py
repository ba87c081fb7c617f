"""A row: its raw bytes, and what may be wrong with it.

What is malformed in a row is a `RowError`; with the file and the line it
becomes a sentence that a person can act on.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class RowError(Exception):
  """What is wrong with a row: what was found and what was expected.

  Attributes:
    line: number of lines from the start of the record to the fault.
  """

  def __init__(self, found: str, expected: str, line: int = 0) -> None:
    super().__init__(f'{found}; expected {expected}')
    self.line = line

  def at(self, place: str) -> RowError:
    """Returns the error with a more precise place before it."""
    self.args = (f'{place}: {self.args[0]}',)
    return self


class DroppedRow(RowError):
  """A row that the official file itself has broken; TFDS leaves it out too."""


class Oddity(RowError):
  """What is merely odd: TFDS and T5 take it, hence so do we, and tell it."""

  def __init__(
    self,
    found: str,
    done: str = 'kept, as TensorFlow Datasets keeps it',
    line: int = 0,
  ) -> None:
    super().__init__(found, '', line)
    self.args = (f'{found}; {done}',)


# Where a record starts, as its stream counts: the offset in a file, its offsets
# in parallel files, or the position of its file in a folder. Each reader says
# which; what serves all readers only compares and keeps it.
Position = Any


class Record(NamedTuple):
  """The raw bytes of one row.

  Attributes:
    data: the bytes.
    offset: where they start.
    name: the name of the file, if they are the whole of it.
  """

  data: bytes
  offset: Position
  name: str = ''


def decode(data: bytes) -> str:
  """Returns `data` as text; a RowError names the first byte outside UTF-8."""
  try:
    return data.decode('utf-8')
  except UnicodeDecodeError as error:
    line = data.count(b'\n', 0, error.start)
    column = error.start - data.rfind(b'\n', 0, error.start)
    raise RowError(
      f'the byte 0x{data[error.start]:02x} at column {column} is not UTF-8',
      'UTF-8 text',
      line,
    ) from error


def quote(text: str, limit: int = 60) -> str:
  """Returns `text`, shortened, as it is shown in an error."""
  return repr(text if len(text) <= limit else text[: limit - 3] + '...')
