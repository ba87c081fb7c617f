"""The formats of a user's own files: TSV, CSV and JSON lines."""

import abc
import contextlib
import csv
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from synth_mtf.rows import formats

# Texts, each with the column that follows it, if any.
Template = Sequence[tuple[str, str | None]]
# Makes a target what the metrics compare, or raises a RowError.
Check = Callable[[str], str]

_JSON = ('.jsonl', '.ndjson', '.json')
_MOST_BYTES = 1 << 20  # of a row of CSV, in case a quote is never closed
csv.field_size_limit(_MOST_BYTES)
_DELIMITERS = {'tabs': '\t', 'commas': ',', 'semicolons': ';'}
_ADVICE = (
  'to read quotes as csv and pandas write them, add `quotes: csv` to the task '
  'file (or `quotes: text` to keep them)'
)


@dataclasses.dataclass(eq=False)
class TaskReader(formats.Reader):
  """Base class for readers that fill templates with the columns of a row.

  In every format, a blank line is skipped, a row without a target is malformed,
  and other empty cells are kept. All but the second are reported as odd. A byte
  order mark is left out of every row, since files may be joined.
  """

  templates: Mapping[str, Template]
  labels: Sequence[str]
  numbers: bool

  schema = {'inputs': formats.TEXT, 'targets': formats.TEXT}
  # Other programs write a byte order mark and CR LF: both are read as usual.
  reports_line_ends = False

  def __post_init__(self) -> None:
    columns: list[str] = []
    for template in self.templates.values():
      columns.extend(column for _, column in template if column)
    self.columns: Sequence[str] = columns

  def first_row(self, path: str) -> tuple[formats.Record, int]:
    """Returns the first row that is not blank, and its line."""
    with formats.fault_at(path, 1):
      for record in self.records(path):
        if record.unmarked.strip():
          return record, 1 + formats.lines_before(path, record.start)
    return formats.Record(b'', 0), 1

  @abc.abstractmethod
  def row(self, record: formats.Record) -> dict[str, str]:
    """Returns the columns by name."""

  def parse(self, record: formats.Record) -> formats.Items:
    record = record._replace(data=record.data.removeprefix(formats.BOM))
    formats.skip_blank(record)
    row = self.row(record)
    inputs = _filled(self.templates['inputs'], row)
    targets = _filled(self.templates['targets'], row)
    if self.labels:
      targets = self.labels[formats.class_of(targets, self.labels)]
    elif self.numbers:
      formats.expect(
        math.isfinite(number(targets, math.nan)),
        f'the target {formats.quote(targets)}',
        'a number',
      )
    formats.expect(targets.strip(), 'an empty target', 'a text')
    for name in dict.fromkeys(self.columns):
      if not row[name].strip():
        yield formats.Oddity(f'an empty {name!r}', 'kept')
    yield {'inputs': inputs, 'targets': targets}


def number(text: str, default: float = -1.0, **_: Any) -> float:
  """Returns the finite number that a text is, or else a default."""
  try:
    value = float(text)
  except ValueError:
    return default
  return value if math.isfinite(value) else default


def _filled(template: Template, row: Mapping[str, str]) -> str:
  text = ''
  for before, column in template:
    text += before
    if column is not None:
      text += row[column]
  return text


class TableReader(TaskReader):
  """Base class for readers of rows whose columns have names in a header."""

  delimiter = '\t'
  delimiter_name = 'tabs'

  @abc.abstractmethod
  def fields(self, record: formats.Record) -> list[str]:
    """Returns the texts between the delimiters of a row."""

  def read_header(
    self, path: str
  ) -> tuple[formats.Record, Sequence[str] | None]:
    header, line = self.first_row(path)
    with formats.fault_at(path, line):
      formats.expect(
        header.data.strip(),
        'an empty file',
        f'a first line with the columns {", ".join(self.columns)}',
      )
      names = self.fields(header)
      first = self.delimiter.join(names)
      _refuse_other_formats(first, self.columns, self.delimiter_name)
      formats.check_header(names, self.columns)
    return header, names

  def row(self, record: formats.Record) -> dict[str, str]:
    names = record.columns or self.columns
    return formats.by_name(names, self.fields(record), self.delimiter_name)


class TsvReader(TableReader):
  """Reads TSV in which quotes are plain text; a carriage return ends a row.

  Quotes that csv or pandas wrote are reported.
  """

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    for line in formats.lines_and_returns(stream):
      yield formats.Record(line, start)
      start += len(line)

  def fields(self, record: formats.Record) -> list[str]:
    return record.line.split(self.delimiter)

  def oddities(self, record: formats.Record) -> Iterator[formats.Oddity]:
    if any(map(_is_quoted, record.unmarked.rstrip(b'\r\n').split(b'\t'))):
      yield formats.Oddity(
        'a field with doubled quotes in quotes',
        f'its quotes are kept as text; {_ADVICE}',
      )

  def row(self, record: formats.Record) -> dict[str, str]:
    try:
      return super().row(record)
    except formats.RowError as error:
      if record.data.count(b'"') % 2:  # a tab or a line break inside, perhaps
        error.args = (f'{error}; {_ADVICE}',)
      raise


def _is_quoted(field: bytes) -> bool:
  """Whether a field has the quotes that CSV needs around quotes."""
  inside = field[1:-1]
  return (
    field == b'"%b"' % inside
    and b'""' in inside
    and b'"' not in inside.replace(b'""', b'')
  )


class PlainTsvReader(TsvReader):
  """Reads TSV in which all quotes are meant as text."""

  def oddities(self, record: formats.Record) -> Iterator[formats.Oddity]:
    yield from ()


class CsvReader(TableReader):
  """Reads CSV as csv and pandas write it (RFC 4180).

  A field may be in double quotes. Quotes inside it are doubled, and it may hold
  line breaks.
  """

  delimiter = ','
  delimiter_name = 'commas'

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    while True:
      lines = _Lines(stream)
      # The bytes of every character but quotes and delimiters stay apart.
      text = (line.decode('latin-1') for line in lines)
      with contextlib.suppress(csv.Error, StopIteration):  # `row` reports it
        next(csv.reader(text, delimiter=self.delimiter, strict=True))
      if not lines.data:
        return
      yield formats.Record(lines.data, start)
      start += len(lines.data)

  def fields(self, record: formats.Record) -> list[str]:
    text = formats.decode(record.unmarked)
    try:
      rows = [*csv.reader([text], delimiter=self.delimiter, strict=True)]
    except csv.Error as error:
      raise formats.RowError(
        f'CSV that does not parse ({error}): {formats.quote(text)}',
        'fields with their quotes closed, and doubled inside',
      ) from error
    return rows[0] if rows else []


class QuotedTsvReader(CsvReader):
  """Reads TSV with the quotes that csv and pandas write."""

  delimiter = '\t'
  delimiter_name = 'tabs'


class _Lines:
  """The lines of a stream until it ends or one row would be too long.

  Attributes:
    data: of the lines that were taken.
  """

  def __init__(self, stream: Any) -> None:
    self._stream = stream
    self.data = b''

  def __iter__(self) -> Iterator[bytes]:
    while len(self.data) < _MOST_BYTES:
      line = self._stream.readline()
      if not line:
        return
      self.data += line
      yield line


class JsonReader(TaskReader):
  """Reads JSON lines; a column is a text, a number, or true or false."""

  def row(self, record: formats.Record) -> dict[str, str]:
    structure = dict.fromkeys(self.columns, object)
    row = formats.json_row(record, structure, _each_name_once)
    for name in self.columns:
      value = row[name]
      # Python reads and writes NaN and Infinity, which are not in JSON.
      is_number = isinstance(value, int) or (
        isinstance(value, float) and math.isfinite(value)
      )
      if is_number:
        row[name] = json.dumps(value)
      formats.check_json(row[name], str, repr(name))
    return row


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Makes a dict; a RowError if a name comes twice."""
  made = dict(pairs)
  if len(made) < len(pairs):
    names = [name for name, _ in pairs]
    (twice, *_) = (name for name in names if names.count(name) > 1)
    raise formats.RowError(f'{twice!r} appears twice', 'it once')
  return made


# What quotes in TSV are: those of csv and pandas, or a part of the text.
_TSV_READERS: dict[str | None, type[TaskReader]] = {
  'csv': QuotedTsvReader,
  'text': PlainTsvReader,
}
QUOTES = ('csv', 'text')


def reader_of(file: str, quotes: str | None) -> type[TaskReader]:
  """Returns the reader of a file by its name, whose end says the format.

  Args:
    file: a path or a pattern.
    quotes: what quotes in TSV are: 'csv', 'text', or None if it is not said.
  """
  name = file.removesuffix('.gz')
  if name.endswith(_JSON):
    return JsonReader
  if name.endswith('.csv'):
    return CsvReader
  return _TSV_READERS.get(quotes, TsvReader)


def _refuse_other_formats(
  first: str, columns: Sequence[str], delimiter: str = 'tabs'
) -> None:
  """Raises a RowError if the first line is that of another format."""
  line = first.strip()
  if line.startswith('{') and '"' in line:
    raise formats.RowError(
      f'JSON: {formats.quote(line)}',
      f'a header with {", ".join(columns)}, separated by {delimiter}; a file '
      f'of JSON lines must end in {" or ".join(_JSON)}',
    )
  wanted = {*columns}
  for name, character in _DELIMITERS.items():
    fields = line.split(character)
    has_columns = wanted <= {field.strip('"') for field in fields}
    if name == delimiter:
      formats.expect(
        wanted <= {*fields} or not has_columns,
        f'columns in quotes: {formats.quote(line)}',
        f'their names; {_ADVICE}',
      )
    elif len(fields) > 1 and has_columns:
      raise formats.RowError(
        f'columns separated by {name}: {formats.quote(line)}',
        f'columns separated by {delimiter}; a file with commas must end in '
        '.csv, one with tabs in .tsv',
      )
