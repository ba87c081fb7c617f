"""Faults and oddities of the rows of official files."""

from __future__ import annotations


class RowError(Exception):
  """A malformed row: what was found and what was expected.

  Attributes:
    line: number of lines from the start of the record to the fault.
    near: text to look for in the file where lines are not counted.
  """

  def __init__(
    self, found: str, expected: str, line: int = 0, near: str = ''
  ) -> None:
    super().__init__(f'{found}; expected {expected}')
    self.line = line
    self.near = near

  def within(self, place: str) -> RowError:
    """Returns the error with a more precise place before it."""
    self.args = (f'{place}: {self.args[0]}',)
    return self


class DroppedRow(RowError):
  """A row that is broken in the released file; TFDS leaves it out, too."""


class Oddity(RowError):
  """Something odd that TFDS and T5 accept, so that we accept and report it."""

  def __init__(
    self,
    found: str,
    done: str = 'kept, as TensorFlow Datasets keeps it',
    line: int = 0,
  ) -> None:
    super().__init__(found, '', line)
    self.args = (f'{found}; {done}',)


def decode(data: bytes) -> str:
  """Decodes UTF-8; a RowError names the first byte that is not."""
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
  """Quotes a text, shortened, for an error message."""
  return repr(text if len(text) <= limit else text[: limit - 3] + '...')
