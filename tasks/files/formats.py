"""Formats: how a file divides into records, and a record into examples.

An example is a nested dict of Python values in the structure that TensorFlow
Datasets gives the same row, so that T5's preprocessors take either.
"""

from __future__ import annotations

import abc
import itertools
import json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow.compat.v2 as tf
from typing_extensions import override

from synth_mtf.tasks.files import streams
from synth_mtf.tasks.files.rows import (
  DroppedRow,
  Oddity,
  Position,
  Record,
  RowError,
  decode,
  quote,
)
from synth_mtf.tasks.files.streams import ByteStream, FolderStream, line_number

Example = Mapping[str, Any]

BOM = b'\xef\xbb\xbf'
TEXT = tf.TensorSpec([], tf.string)
TEXTS = tf.TensorSpec([None], tf.string)
LABEL = tf.TensorSpec([], tf.int64)
INT = tf.TensorSpec([], tf.int32)
INTS = tf.TensorSpec([None], tf.int32)
FLOAT = tf.TensorSpec([], tf.float32)

NO_LABEL = -1  # the label of rows of test sets, as in TFDS


class Reader(abc.ABC):
  """One file format.

  Attributes:
    schema: nested dict of tf.TensorSpec, the structure of an example.
    scanned: whether every row is read once before the first use, to count and
      to check it. Otherwise the rows are streamed, and faults show up as they
      come.
    header: whether the first line is not a record.
    marked: whether the official file starts with a byte order mark.
    dropped_rows: how many `DroppedRow`s are not yet a fault.
  """

  schema: Mapping[str, Any]
  scanned = True
  header = False
  marked = False
  dropped_rows = 0

  @property
  def key(self) -> str:
    """Names the format in the cache of row counts."""
    return type(self).__name__

  def open(self, path: str, offset: Position = 0) -> Any:
    """Opens a stream whose `offset` says where the next record starts."""
    return ByteStream(path, offset)

  def files(self, path: str) -> list[str]:
    """Returns the files that `path` stands for."""
    return [path]

  def place(self, path: str, offset: Position, line: int) -> str:
    """Returns `file:line` of a line of the record at `offset`."""
    return f'{path}:{line_number(path, offset) + line}'

  def read_header(self, record: Record) -> Any:
    """Returns what `parse` needs of the first line, if that is a header."""
    del record

  def records(
    self, stream: Any, end: Position | None = None
  ) -> Iterator[Record]:
    """Yields the records that start before the offset `end`.

    Raises:
      RowError: at the stream's offset no record starts, and none follows.
    """
    while end is None or stream.offset < end:
      data = stream.readline()
      if not data:
        return
      yield Record(data, stream.offset - len(data))

  def oddity(self, record: Record) -> Oddity | None:
    """Returns what is odd around a record: reading it does not change it."""
    if record.data.startswith(BOM) and not record.offset and not self.marked:
      return Oddity('a byte order mark before the text', 'read without it')
    if record.data.endswith(b'\r\n'):
      return Oddity('a line that ends in CR LF', 'read as if in LF')
    return None

  @abc.abstractmethod
  def parse(
    self, record: Record, number: int, header: Any
  ) -> Sequence[Example | RowError]:
    """Returns the examples of a record, and what is wrong or odd with some.

    Args:
      record: the raw bytes.
      number: how many records come before it in the file.
      header: what `read_header` returned; None without a header.

    Raises:
      RowError: the record as a whole is malformed.
    """


def line_text(record: Record, broken: type[RowError] = RowError) -> str:
  """Returns the text of a one-line record, without line end and mark.

  Args:
    record: the line.
    broken: what is raised for a line that is no row.
  """
  data = record.data
  if record.offset == 0 and data.startswith(BOM):
    data = data[len(BOM) :]
  data = data.rstrip(b'\n')
  if data.endswith(b'\r'):
    data = data[:-1]
  if not data.strip():
    raise broken('an empty line', 'a row')
  if b'\r' in data:
    raise broken('a carriage return inside a row', 'tabs and text only')
  return decode(data)


class FolderReader(Reader):
  """A folder of small files, each of them a row.

  Attributes:
    folders: the subfolders that hold them.
    suffix: how their names end.
  """

  folders: Sequence[str] = ('',)
  suffix = '.txt'

  @override
  def open(self, path: str, offset: Position = 0) -> FolderStream:
    return FolderStream(path, self.names(path), offset)

  @override
  def files(self, path: str) -> list[str]:
    return [os.path.join(path, name) for name in self.names(path)]

  @override
  def place(self, path: str, offset: Position, line: int) -> str:
    return f'{self.files(path)[offset]}:{1 + line}'

  @override
  def records(
    self, stream: FolderStream, end: Position | None = None
  ) -> Iterator[Record]:
    while end is None or stream.offset < end:
      record = stream.readfile()
      if record is None:
        return
      yield record

  @override
  def oddity(self, record: Record) -> None:
    return None

  def names(self, path: str) -> list[str]:
    """Returns the files, relative to the folder, in order."""
    return sorted(
      os.path.join(folder, name)
      for folder in self.folders
      for name in streams.names_in(os.path.join(path, folder))
      if name.endswith(self.suffix)
    )


class TsvReader(Reader):
  """Tab-separated columns; a quote character is text like any other."""

  columns: Sequence[str] = ()  # those that are used
  header = True

  @abc.abstractmethod
  def example(self, row: Mapping[str, str], number: int) -> Example:
    """Returns the example of a row, given by column name."""

  def oddities(self, row: Mapping[str, str]) -> list[Oddity]:
    """Returns what is odd about a row that makes an example."""
    del row
    return []

  @override
  def read_header(self, record: Record) -> Sequence[str]:
    names = line_text(record).split('\t')
    missing = [name for name in self.columns if name not in names]
    if missing:
      raise RowError(
        f'a first line without the column {missing[0]!r}: '
        f'{quote(" | ".join(names))}',
        f'a header with {", ".join(self.columns)}',
      )
    return names

  @override
  def parse(
    self, record: Record, number: int, header: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    names = header or self.columns
    found: list[Oddity] = []
    broken = DroppedRow if self.dropped_rows else RowError
    fields = line_text(record, broken).split('\t')
    if not record.data.endswith(b'\n'):
      found.append(Oddity('a last line without a line end'))
    if len(fields) < len(names):
      raise _wrong_width(broken, fields, names)
    if len(fields) > len(names):
      found.append(Oddity('more columns than the header has', 'not used'))
    row = dict(zip(names, fields))
    try:
      return [self.example(row, number), *found, *self.oddities(row)]
    except DroppedRow:
      raise
    except RowError as error:
      if len(fields) > len(names):
        raise _wrong_width(RowError, fields, names) from error
      raise


def _wrong_width(
  kind: type[RowError], fields: Sequence[str], names: Sequence[str]
) -> RowError:
  return kind(
    f'{len(fields)} tab-separated columns: {quote(" | ".join(fields))}',
    f'{len(names)} ({", ".join(names)})',
  )


class JsonLinesReader(Reader):
  """One JSON object a line."""

  @abc.abstractmethod
  def examples(
    self, row: JsonObject, number: int
  ) -> Sequence[Example | RowError]:
    """Returns the examples of one object."""

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example | RowError]:
    del header
    return self.examples(parse_json_object(line_text(record)), number)


class JsonObject:
  """A JSON object whose values are asked for by name and type."""

  __slots__ = ('_index', '_name', '_value')

  def __init__(
    self, value: Any, name: str = 'row', index: int | None = None
  ) -> None:
    self._value = value
    self._name = name
    self._index = index
    if not isinstance(value, dict):
      raise RowError(f'{self._where}: {_shown(value)}', 'a JSON object')

  def __contains__(self, name: str) -> bool:
    return name in self._value

  def text(self, name: str) -> str:
    """Returns a string."""
    value = self._value.get(name)
    if type(value) is str and value.isascii():
      return value  # nearly always; the rest should cost such values nothing
    value = self._get(name, str, 'a string')
    try:
      value.encode('utf-8')
    except UnicodeEncodeError as error:
      raise RowError(
        f'{name!r} has half of a surrogate pair at character {error.start}',
        'whole characters',
      ) from error
    return value

  def integer(self, name: str) -> int:
    """Returns an integer that fits 32 bits."""
    value = self._value.get(name)
    if type(value) is int and -(2**31) <= value < 2**31:
      return value
    value = self._get(name, int, 'an integer')
    raise RowError(f'{name!r}: {_shown(value)}', 'a 32-bit integer')

  def value(self, name: str) -> Any:
    """Returns a value of any type."""
    return self._get(name, object, 'a value')

  def object(self, name: str) -> JsonObject:
    """Returns a nested object."""
    return JsonObject(self._get(name, dict, 'an object'), name)

  def objects(self, name: str) -> list[JsonObject]:
    """Returns a list of objects."""
    values = self._get(name, list, 'a list')
    return [JsonObject(value, name, i) for i, value in enumerate(values)]

  def integers(self, name: str, *keys: str) -> list[tuple[int, ...]]:
    """Returns those integers of each of a list of objects."""
    values = self._get(name, list, 'a list')
    try:
      found = list(map(operator.itemgetter(*keys), values))
      integers = [*itertools.chain.from_iterable(found)]
      if (
        {*map(type, integers)} == {int}
        and min(integers) >= -(2**31)
        and max(integers) < 2**31
      ):
        return found  # nearly always, as for a text
    except (KeyError, TypeError):
      pass
    return [tuple(map(one.integer, keys)) for one in self.objects(name)]

  @property
  def _where(self) -> str:
    return self._name if self._index is None else f'{self._name}[{self._index}]'

  def _get(self, name: str, kind: type, expected: str) -> Any:
    try:
      value = self._value[name]
    except KeyError:
      raise RowError(
        f'{self._where} without {name!r}, with '
        f'{quote(", ".join(map(str, self._value)))}',
        f'{expected} under {name!r}',
      ) from None
    if not isinstance(value, kind):
      raise RowError(f'{name!r}: {_shown(value)}', expected)
    return value


def parse_json_object(text: str) -> JsonObject:
  """Returns the object that one line holds."""
  try:
    return JsonObject(json.loads(text))
  except (json.JSONDecodeError, RecursionError) as error:
    where = getattr(error, 'colno', 1)
    raise RowError(
      f'JSON that does not parse ({error.args[0]}): {quote(text[-60:])}'
      if where > len(text)
      else f'JSON that does not parse (column {where}: '
      f'{quote(text[max(where - 1, 0) :])})',
      'one JSON object a line',
    ) from error


def _shown(value: Any) -> str:
  return quote(value if isinstance(value, str) else json.dumps(value))
