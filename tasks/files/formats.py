"""File formats: how a file divides into rows, and a row into examples.

An example is a nested dict of Python values in the structure that TensorFlow
Datasets gives the same row, so that T5's preprocessors take either.
"""

from __future__ import annotations

import abc
import contextlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

import tensorflow.compat.v2 as tf
from typing_extensions import override

from synth_mtf.errors import UserError
from synth_mtf.tasks.files import storage

Example = Mapping[str, Any]
# Where a row starts: the offset in a file, the offsets in parallel files, or
# the number of its file in a folder.
Position = Any

BOM = b'\xef\xbb\xbf'
TEXT = tf.TensorSpec([], tf.string)
TEXTS = tf.TensorSpec([None], tf.string)
LABEL = tf.TensorSpec([], tf.int64)
INT = tf.TensorSpec([], tf.int32)
INTS = tf.TensorSpec([None], tf.int32)
FLOAT = tf.TensorSpec([], tf.float32)

NO_LABEL = -1  # the label of rows of test sets, as in TFDS


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


# What a record makes: its examples, and the faults and oddities of some.
Items = Sequence[Union[Example, RowError]]


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


class Record(NamedTuple):
  """One row as it is in the file, and the name of the file if it is all of it.

  `data` is usually bytes.
  """

  data: Any
  start: Position
  name: str = ''


class Header(NamedTuple):
  """The names in the first line of a file, and its length in bytes."""

  columns: Sequence[str] | None = None
  size: int = 0
  oddity: Oddity | None = None


class Reader(abc.ABC):
  """Base class of the formats.

  Attributes:
    schema: nested dict of tf.TensorSpec, the structure of an example.
    indexed: whether every row is checked and counted before the first is used.
      Otherwise rows are streamed, and faults show up as they come.
    marked: whether the official file starts with a byte order mark.
    dropped_rows: how many instances of `DroppedRow` are not yet a fault.
  """

  schema: Mapping[str, Any]
  indexed = True
  marked = False
  dropped_rows = 0

  def __init__(self, *arguments: object) -> None:
    # Identifies the format in the index.
    self.key = '/'.join([type(self).__name__, *map(str, arguments)])

  def files(self, path: str) -> list[str]:
    """Returns the files that `path` stands for."""
    return [path]

  def place(self, path: str, start: Position, error: RowError) -> str:
    """Returns `file:line` of an error in the record at `start`."""
    return f'{path}:{1 + storage.lines_before(path, start) + error.line}'

  def read_header(self, path: str) -> Header:
    """Reads the first line, if it is not a row."""
    del path
    return Header()

  @contextlib.contextmanager
  def open(
    self, path: str, start: Position = 0, end: Position | None = None
  ) -> Iterator[tuple[Any, Position]]:
    """Opens what lies between two rows; returns where that really starts."""
    with storage.reading(path) as stream:
      if start:
        stream.seek(start)
      yield (
        stream if end is None else io.BytesIO(stream.read(end - start)),
        start,
      )

  def records(self, stream: Any, start: Position) -> Iterator[Record]:
    """Yields the records of what `open` opened."""
    for data in stream:
      yield Record(data, start)
      start += len(data)

  def oddity(self, record: Record) -> Oddity | None:
    """Returns what is odd around a record and does not change it."""
    if record.data.startswith(BOM) and not record.start and not self.marked:
      return Oddity('a byte order mark before the text', 'read without it')
    if record.data.endswith(b'\r\n'):
      return Oddity('a line that ends in CR LF', 'read as if in LF')
    return None

  @abc.abstractmethod
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    """Returns the examples of record `number`, and faults and oddities of some.

    Raises:
      RowError: the record as a whole is malformed.
    """


def line_text(record: Record, broken: type[RowError] = RowError) -> str:
  """Returns the text of a line; raises `broken` if it is not a row."""
  data = record.data
  if record.start == 0:
    data = data.removeprefix(BOM)
  data = data.rstrip(b'\n').removesuffix(b'\r')
  if not data.strip():
    raise broken('an empty line', 'a row')
  if b'\r' in data:
    raise broken('a carriage return inside a row', 'tabs and text only')
  return decode(data)


def paragraphs(
  stream: Any, start: int, full: Callable[[bytes], bool]
) -> Iterator[Record]:
  """Yields the lines up to an empty one, or until they are `full`."""
  block = b''
  for line in itertools.chain(stream, [b'']):
    block += line if line.strip() else b''
    if block and (not line.strip() or full(block)):
      yield Record(block, start)
      start += len(block)
      block = b''
    start += 0 if line.strip() else len(line)


class FolderReader(Reader):
  """A folder of small files, each of them a row.

  Attributes:
    folders: the subfolders that hold them.
    suffix: how their names end.
  """

  folders: Sequence[str] = ('',)
  suffix = '.txt'

  @override
  def files(self, path: str) -> list[str]:
    return [os.path.join(path, name) for name in self.names(path)]

  @override
  def place(self, path: str, start: Position, error: RowError) -> str:
    return f'{self.files(path)[start]}:{1 + error.line}'

  @override
  @contextlib.contextmanager
  def open(
    self, path: str, start: Position = 0, end: Position | None = None
  ) -> Iterator[tuple[list[str], Position]]:
    yield self.files(path)[start:end], start

  @override
  def records(self, stream: Any, start: Position) -> Iterator[Record]:
    for number, path in enumerate(stream, start):
      with storage.reading(path) as file:
        yield Record(file.read(), number, path)

  @override
  def oddity(self, record: Record) -> None:
    return None

  def names(self, path: str) -> list[str]:
    """Returns the files, relative to the folder, in order."""
    return sorted(
      os.path.join(folder, name)
      for folder in self.folders
      for name in storage.names_in(os.path.join(path, folder))
      if name.endswith(self.suffix)
    )


class TsvReader(Reader):
  """Tab-separated columns; a quote character is text like any other.

  Attributes:
    columns: those that are used; of a file without a header, all of them.
    header: whether the first line names the columns.
  """

  columns: Sequence[str] = ()
  header = True

  @abc.abstractmethod
  def example(self, row: Mapping[str, str], number: int) -> Example:
    """Returns the example of a row, given by column name."""

  def oddities(self, row: Mapping[str, str]) -> list[Oddity]:
    """Returns what is odd about a row that makes an example."""
    del row
    return []

  @override
  def read_header(self, path: str) -> Header:
    if not self.header:
      return Header()
    with storage.reading(path) as stream:
      record = Record(stream.readline(), 0)
    if not record.data:
      raise UserError(f'{path}:1: an empty file; expected a header and rows')
    try:
      names = line_text(record).split('\t')
    except RowError as error:
      raise UserError(f'{path}:1: {error}') from error
    missing = [name for name in self.columns if name not in names]
    if missing:
      raise UserError(
        f'{path}:1: a first line without the column {missing[0]!r}: '
        f'{quote(" | ".join(names))}; expected a header with '
        f'{", ".join(self.columns)}'
      )
    return Header(names, len(record.data), self.oddity(record))

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    names = columns or self.columns
    found: list[Oddity] = []
    broken = DroppedRow if self.dropped_rows else RowError
    fields = line_text(record, broken).split('\t')
    wrong_width = (
      f'{len(fields)} tab-separated columns: {quote(" | ".join(fields))}',
      f'{len(names)} ({", ".join(names)})',
    )
    if not record.data.endswith(b'\n'):
      found.append(Oddity('a last line without a line end'))
    if len(fields) < len(names):
      raise broken(*wrong_width)
    if len(fields) > len(names):
      found.append(Oddity('more columns than the header has', 'not used'))
    row = dict(zip(names, fields))
    try:
      return [self.example(row, number), *found, *self.oddities(row)]
    except RowError as error:
      if len(fields) > len(names) and not isinstance(error, DroppedRow):
        raise RowError(*wrong_width) from error
      raise


_EXPECTED = {
  str: 'a string',
  int: 'an integer',
  dict: 'an object',
  list: 'a list',
  object: 'a value',
}


def json_row(record: Record, structure: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the JSON object of a line, which must have the given structure."""
  text = line_text(record)
  try:
    row = json.loads(text)
  except (json.JSONDecodeError, RecursionError) as error:
    where = getattr(error, 'colno', 1)
    raise RowError(
      f'JSON that does not parse ({error.args[0]}): {quote(text[-60:])}'
      if where > len(text)
      else f'JSON that does not parse (column {where}: '
      f'{quote(text[max(where - 1, 0) :])})',
      'one JSON object a line',
    ) from error
  check_json(row, structure)
  return row


def check_json(value: Any, structure: Any, name: str = 'row') -> None:
  """Raises a RowError if a key is missing, or if a value has another type.

  A structure is a type, a list of one structure, or a dict of structures.
  """
  kind: Any = structure if isinstance(structure, type) else type(structure)
  if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
    shown = value if isinstance(value, str) else json.dumps(value)
    raise RowError(f'{name}: {quote(shown)}', _EXPECTED[kind])
  if kind is str and not value.isascii():
    try:
      value.encode('utf-8')
    except UnicodeEncodeError as error:
      raise RowError(
        f'{name} has half of a surrogate pair at character {error.start}',
        'whole characters',
      ) from error
  if kind is int and not -(2**31) <= value < 2**31:
    raise RowError(f'{name}: {value}', 'a 32-bit integer')
  if isinstance(structure, dict):
    for key, inner in structure.items():
      if key not in value:
        wanted = inner if isinstance(inner, type) else type(inner)
        raise RowError(
          f'{name} without {key!r}, with {quote(", ".join(value))}',
          f'{_EXPECTED[wanted]} under {key!r}',
        )
      check_json(value[key], inner, repr(key))
  if isinstance(structure, list):
    for i, item in enumerate(value):
      check_json(item, structure[0], f'{name}[{i}]')
