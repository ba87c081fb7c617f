"""File formats: how files split into rows, and rows into examples.

An example is a nested dict of Python values with the structure that TensorFlow
Datasets gives the same row, so that T5's preprocessors accept both.
"""

import abc
import contextlib
import dataclasses
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem

Example = Mapping[str, Any]
# Where a row starts: an offset in a file, offsets in parallel files, or the
# index of its file in a folder.
Position = Any

_MOST_ROW_BYTES = 256 << 20
_BUFFER_BYTES = 1 << 20
BOM = b'\xef\xbb\xbf'


@dataclasses.dataclass(frozen=True)
class Spec:
  """The type of a value in an example.

  Attributes:
    dtype: its name in TensorFlow.
    is_list: whether there are any number of such values.
  """

  dtype: str
  is_list: bool = False


TEXT = Spec('string')
TEXTS = Spec('string', is_list=True)
LABEL = Spec('int64')
INT = Spec('int32')
INTS = Spec('int32', is_list=True)
FLOAT = Spec('float32')

# How files begin that are not text in UTF-8.
_BINARY = {
  b'\x1f\x8b': 'gzip, whose name must end in .gz',
  b'PK\x03\x04': 'a ZIP archive',
  b'BZh': 'bzip2',
  b'\xfd7zXZ': 'xz',
  b'\x28\xb5\x2f\xfd': 'Zstandard',
  b'PAR1': 'Parquet',
  b'%PDF': 'PDF',
  b'\xff\xfe': 'UTF-16',
  b'\xfe\xff': 'UTF-16',
}

NO_LABEL = -1  # the label of test rows, as in TFDS
LEFT_OUT = 'left out, as TensorFlow Datasets leaves it out'


class RowError(Exception):
  """A malformed row: what was found, what was expected, in which of its lines.

  If the format does not count lines, `near` is a text that locates the row.
  """

  near = ''

  def __init__(self, found: str, expected: str, line: int = 0) -> None:
    super().__init__(f'{found}; expected {expected}')
    self.line = line


def expect(condition: Any, found: str, expected: str, line: int = 0) -> None:
  """Raises a RowError if a condition is not true."""
  if not condition:
    raise RowError(found, expected, line)


@contextlib.contextmanager
def fault_at(path: str, line: int) -> Iterator[None]:
  """Converts faults in a text that starts at a line to a UserError."""
  try:
    yield
  except (RowError, ValueError) as error:
    reason = str(error).partition('\n')[0].rstrip(':')
    line += getattr(error, 'line', 0)
    raise UserError(f'{path}:{line}: {reason}') from error


# How files begin that hold sentences in SGML or XML.
MARKUP = re.compile(
  r'\s*<(\?xml|!doctype|srcset|refset|tstset|mteval|tmx|html|doc|hl|seg)\b',
  re.IGNORECASE,
)


class Oddity(RowError):
  """Something odd that TFDS and T5 accept, and that we accept and report.

  A reader raises it, instead of yielding it, for a row that TFDS leaves out.
  """

  def __init__(
    self,
    found: str,
    done: str = 'kept, as TensorFlow Datasets keeps it',
    line: int = 0,
  ) -> None:
    super().__init__(found, '', line)
    self.args = (f'{found}; {done}',)


# The contents of a record: its examples, and their faults and oddities.
Items = Iterable[Example | RowError]


def decode(data: bytes) -> str:
  """Decodes UTF-8; a RowError names the first invalid byte.

  NUL is invalid, too: no text has it, but text in UTF-16 and files that a crash
  filled have.
  """
  text = ''
  try:
    text = data.decode('utf-8')
    invalid = data.find(b'\0')
  except UnicodeDecodeError as error:
    invalid = error.start
  if invalid < 0:
    return text
  column = invalid - data.rfind(b'\n', 0, invalid)
  found = f'the byte 0x{data[invalid]:02x} at column {column} is not UTF-8'
  for start, kind in _BINARY.items():
    if data.startswith(start):
      found = f'{kind} ({found})'
  raise RowError(found, 'UTF-8 text', line=data.count(b'\n', 0, invalid))


def quote(text: str, limit: int = 60) -> str:
  """Quotes and shortens a text for an error message."""
  return repr(text if len(text) <= limit else text[: limit - 3] + '...')


class Record(NamedTuple):
  """A raw row."""

  data: Any  # usually bytes
  start: Position
  name: str = ''  # of its file if each file is one row
  number: int = 0  # how many rows precede it in the file
  columns: Sequence[str] | None = None  # names in the file's header

  @property
  def unmarked(self) -> bytes:
    """The data, in the first row without a byte order mark."""
    return self.data if self.start else self.data.removeprefix(BOM)

  @property
  def line(self) -> str:
    """The text of a line without its end."""
    return decode(self.unmarked.rstrip(b'\r\n'))


def class_of(label: str, classes: Sequence[str]) -> int:
  """Returns the class of a label, which is a class's name or number.

  If a name is itself a number, only names are labels.
  """
  if label in classes:
    return classes.index(label)
  expected = list(classes)
  if not any(re.fullmatch(r'[-+]?[\d.]*\d', name) for name in classes):
    numbers = [str(i) for i in range(len(classes))]
    if label.strip() in numbers:
      return numbers.index(label.strip())
    expected = [f'{i} or {name}' for i, name in enumerate(classes)]
  raise RowError(f'the label {quote(label)}', f'one of: {", ".join(expected)}')


@dataclasses.dataclass(eq=False)
class Reader(abc.ABC):
  """Base class for readers of a file format.

  In the index, the `repr` of a reader, its name and fields, identifies the
  format.
  """

  # The structure of an example: a nested dict of Spec.
  schema: Mapping[str, Any] = dataclasses.field(init=False, repr=False)
  # Whether files are divided by their index. Otherwise, they are divided by
  # size, and the rows of a large text are checked only as they are read.
  indexed = True
  reports_line_ends = False  # CR, CR LF, and a byte order mark

  def files(self, path: str) -> list[str]:
    """Returns the files that `path` stands for."""
    return [path]

  def place(self, path: str, start: Position, error: RowError) -> str:
    """Returns `file:line` of an error in the record at `start`."""
    return f'{path}:{1 + lines_before(path, start) + error.line}'

  def read_header(self, path: str) -> tuple[Record, Sequence[str] | None]:
    """Returns the header and its columns.

    Without a header, they are an empty record and None.
    """
    return Record(b'', 0), None

  def records(
    self, path: str, start: Position = 0, end: Position | None = None
  ) -> Iterator[Record]:
    """Yields the rows between two offsets."""
    with filesystem.reading(path) as stream:
      stream.seek(start)
      if end is not None:
        stream = io.BytesIO(stream.read(end - start))
      yield from self.split(stream, start)

  def split(self, stream: Any, start: int) -> Iterator[Record]:
    """Splits a stream of lines, the first at `start`, into rows."""
    for data in lines(stream):
      yield Record(data, start)
      start += len(data)

  def oddities(self, record: Record) -> Iterator[Oddity]:
    """Yields oddities of a record that do not affect its content."""
    if not self.reports_line_ends:
      return
    if record.unmarked != record.data:
      yield Oddity('a byte order mark before the text', 'left out')
    if record.data.endswith((b'\r\n', b'\r')):
      end = 'CR LF' if record.data.endswith(b'\n') else 'CR'
      yield Oddity(f'a line that ends in {end}', 'read as if it ended in LF')

  @abc.abstractmethod
  def parse(self, record: Record) -> Items:
    """Yields the examples of a record, with any faults and oddities.

    Raises a RowError if the whole record is malformed.
    """


def lines(stream: Any) -> Iterator[bytes]:
  """Yields the lines of a stream; a RowError if one is too long for a row."""
  while line := stream.readline(_MOST_ROW_BYTES):
    expect(
      len(line) < _MOST_ROW_BYTES,
      f'a line of {_MOST_ROW_BYTES:,} bytes or more',
      'a row, which is shorter',
    )
    yield line


def lines_and_returns(stream: Any) -> Iterator[bytes]:
  """Yields the lines of a stream, which a carriage return ends, too."""
  for line in lines(stream):
    yield from line.splitlines(keepends=True)


def lines_before(path: str, offset: int) -> int:
  """Counts the lines before an offset by reading the file up to it."""
  count = 0
  with filesystem.reading(path) as stream:
    while chunk := stream.read(min(offset, _BUFFER_BYTES)):
      count += chunk.count(b'\n')
      offset -= len(chunk)
  return count


def skip_blank(record: Record) -> None:
  """Leaves out a line of a user's own file that holds no row."""
  if not record.unmarked.strip():
    raise Oddity('a blank line', 'skipped')


def by_name(
  names: Sequence[str], fields: Sequence[str], delimiters: str = 'tabs'
) -> dict[str, str]:
  """Returns the fields of a row; a RowError if they are more or fewer."""
  expect(
    len(fields) == len(names),
    f'{len(fields)} columns, separated by {delimiters}: '
    f'{quote(" | ".join(fields))}',
    f'{len(names)} ({", ".join(names)})',
  )
  return dict(zip(names, fields, strict=True))


def check_header(names: Sequence[str], columns: Sequence[str]) -> None:
  """Raises a RowError if a header lacks a column or has it twice."""
  for name in columns:
    expect(
      name in names,
      f'a first line without the column {name!r}: {quote(" | ".join(names))}',
      f'a header with {", ".join(columns)}',
    )
    once = names.count(name) == 1
    expect(once, f'the column {name!r} appears twice', 'it once')


def paragraphs(
  lines: Iterable[bytes], start: int, full: Callable[[bytes], bool]
) -> Iterator[Record]:
  """Yields blocks of lines; a block ends at an empty line or once `full`."""
  block = b''
  for line in lines:
    is_empty = not line.strip()
    if not is_empty:
      block += line
    if block and (is_empty or full(block)):
      yield Record(block, start)
      start += len(block)
      block = b''
    if is_empty:
      start += len(line)
  if block:
    yield Record(block, start)


class FolderReader(Reader):
  """Reads a folder of small files, one row per file."""

  folders: Sequence[str]  # the subfolders with the files
  suffix: str | tuple[str, ...] = '.txt'

  def files(self, path: str) -> list[str]:
    self._last_found = path, self.find(path)
    return self._last_found[1]

  def _known_files(self, path: str) -> list[str]:
    """Returns the files as they were last listed: parts refer to these."""
    known, files = getattr(self, '_last_found', ('', []))
    return files if known == path else self.files(path)

  def find(self, path: str) -> list[str]:
    """Lists the files in the order of the rows."""
    found: list[str] = []
    for name in self.folders:
      folder = os.path.join(path, name)
      if filesystem.has_folder(folder):
        names = filesystem.names(folder)
        found += [f'{folder}/{x}' for x in names if x.endswith(self.suffix)]
    return sorted(found)

  def place(self, path: str, start: Position, error: RowError) -> str:
    return f'{self._known_files(path)[start]}:{1 + error.line}'

  def records(
    self, path: str, start: int = 0, end: int | None = None
  ) -> Iterator[Record]:
    for number, name in enumerate(self._known_files(path)[start:end], start):
      data = filesystem.read(name, filesystem.DOCUMENT_BYTES)
      yield Record(data, number, name)


_EXPECTED = {
  str: 'a string',
  int: 'an integer',
  dict: 'an object',
  list: 'a list',
}


def parse_json(
  text: str,
  expected: str,
  made: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
  """Parses JSON; a RowError says where it is not JSON.

  Args:
    text: to parse.
    expected: what it should be, for the message.
    made: makes what an object becomes of its names and values; default: a dict,
      with the last value of a name.
  """
  try:
    return json.loads(text, object_pairs_hook=made)
  except (ValueError, RecursionError) as error:  # also for an endless integer
    raise RowError(
      f'JSON that does not parse ({error.args[0]})',
      expected,
      line=getattr(error, 'lineno', 1) - 1,
    ) from error


def json_row(
  record: Record,
  structure: Mapping[str, Any],
  made: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> dict[str, Any]:
  """Parses a line as a JSON object and checks its structure."""
  expected = 'one JSON object per line'
  if record.line.lstrip().startswith('['):
    raise RowError('a JSON array', f"{expected}, as `jq -c '.[]'` writes them")
  row = parse_json(record.line, expected, made)
  check_json(row, structure)
  return row


def check_json(value: Any, structure: Any, name: str = 'row') -> None:
  """Raises a RowError if a key is missing or a value has the wrong type.

  A structure is a type, a list of one structure, or a dict of structures.
  """
  if isinstance(structure, type):
    _check_type(value, structure, name)
    return
  _check_type(value, type(structure), name)
  if isinstance(structure, dict):
    for key, inner in structure.items():
      if key not in value:
        raise RowError(
          f'{name} without {key!r}, with {quote(", ".join(value))}',
          f'the keys {", ".join(structure)}',
        )
      check_json(value[key], inner, repr(key))
  if isinstance(structure, list):
    for i, item in enumerate(value):
      check_json(item, structure[0], f'{name}[{i}]')


def _check_type(value: Any, expected: Any, name: str) -> None:
  is_boolean = isinstance(value, bool)  # in Python, also an integer
  if not isinstance(value, expected) or (expected is int and is_boolean):
    shown = value if isinstance(value, str) else json.dumps(value)
    raise RowError(f'{name}: {quote(shown)}', _EXPECTED[expected])
  if expected is str and not value.isascii():
    try:
      value.encode('utf-8')
    except UnicodeEncodeError as error:
      raise RowError(
        f'{name} has half of a surrogate pair at character {error.start}',
        'whole characters',
      ) from error
  if expected is int and not -(2**31) <= value < 2**31:
    raise RowError(f'{name}: {value}', 'a 32-bit integer')
