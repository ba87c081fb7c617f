"""Indexes a file in one pass: its number of examples, parts and faults.

The indexes of a split's files are cached in one JSON file, and each is used
until the indexed file changes.
"""

import collections
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from synth_mtf.rows import formats
from synth_mtf.storage import filesystem, remembered
from synth_mtf.tasks import data_settings

# Short files have small parts, so that shuffling the parts mixes the rows. Long
# files have larger parts, up to a size at which opening one is cheap compared
# with reading it.
_LEAST_EXAMPLES = 16
_MOST_EXAMPLES = 256
_MANY_PARTS = 1024
_FAULTS_SHOWN = 20
_VERSION = 12


class Part(NamedTuple):
  """A range of rows in a file, which can be read independently."""

  reader: formats.Reader
  path: str
  start: formats.Position = 0
  end: formats.Position | None = None  # None for the last part
  number: int = 0  # how many rows precede it in the file
  columns: Sequence[str] | None = None  # names in the file's header


@dataclasses.dataclass
class FileIndex:
  """The result of one pass over a file, or over its first rows."""

  reader: formats.Reader
  path: str
  num_examples: int | None = 0  # None if only the first rows were read
  columns: Sequence[str] | None = None  # names in the header
  starts: list[tuple[formats.Position, int]] = dataclasses.field(
    default_factory=list
  )
  num_faults: int = 0
  # The first bad rows, one line each, and a summary.
  faults: list[str] = dataclasses.field(default_factory=list)
  # One line per kind of oddity: its first place and the count.
  notes: Sequence[str] = ()

  def parts(self) -> list[Part]:
    """Returns the parts in order; they cover all rows, including bad ones."""
    ends = [start for start, _ in self.starts[1:]]
    ends.append(None)
    return [
      Part(self.reader, self.path, start, end, number, self.columns)
      for (start, number), end in zip(self.starts, ends, strict=True)
    ]


def read(part: Part) -> Iterator[tuple[formats.Record, formats.Items]]:
  """Yields each row of a part with its examples and faults."""
  records = part.reader.records(part.path, part.start, part.end)
  try:
    for number, record in enumerate(records, part.number):
      record = record._replace(number=number, columns=part.columns)
      try:
        yield record, [*part.reader.parse(record)]
      except formats.RowError as error:
        yield record, [error]
  except formats.RowError as error:
    yield formats.Record(b'', part.start), [error]


def scan(
  path: str, reader: formats.Reader, limit: int | None = None
) -> FileIndex:
  """Reads every row of `path` once, or the first `limit` rows."""
  header, columns = reader.read_header(path)
  index = FileIndex(reader, path, columns=columns)
  oddities = _Oddities(path, reader, header)
  num_rows = num_examples = in_part = 0
  start = header.start + len(header.data)
  part_examples = _LEAST_EXAMPLES
  rows = read(Part(reader, path, start, columns=columns))
  for record, items in itertools.islice(rows, limit):
    if not index.starts or in_part >= part_examples:
      if len(index.starts) >= _MANY_PARTS and part_examples < _MOST_EXAMPLES:
        del index.starts[1::2]
        part_examples *= 2
      index.starts.append((record.start, num_rows))
      in_part = 0
    num_rows += 1
    for item in [*reader.oddities(record), *items]:
      if not isinstance(item, formats.RowError):
        in_part += 1
        num_examples += 1
      elif isinstance(item, formats.Oddity):
        oddities.count(record, item)
      else:
        index.num_faults += 1
        if index.num_faults <= _FAULTS_SHOWN:
          place = reader.place(path, record.start, item)
          index.faults.append(f'{place}: {item}')
  if index.num_faults:
    index.faults.append(
      f'{path}: {index.num_faults} faults; without the bad rows, '
      f'{num_examples} examples remain'
    )
  index.num_examples = None if limit else num_examples
  index.notes = oddities.notes(num_rows)
  return index


class _Oddities:
  """Counts the oddities of a file by kind, and notes where each is first."""

  def __init__(
    self, path: str, reader: formats.Reader, header: formats.Record
  ) -> None:
    self._path = path
    self._reader = reader
    self._places: dict[str, str] = {}
    self._counts: collections.Counter[str] = collections.Counter()
    for oddity in reader.oddities(header):
      self.count(header, oddity)
    self._in_header = set(self._counts)

  def count(self, record: formats.Record, oddity: formats.Oddity) -> None:
    text = str(oddity)
    if text not in self._places:
      place = self._reader.place(self._path, record.start, oddity)
      self._places[text] = place
    self._counts[text] += 1

  def notes(self, num_rows: int) -> list[str]:
    """Returns a line for each kind."""
    notes = []
    for text, count in self._counts.items():
      total = f'{num_rows} rows'
      if text in self._in_header:
        total = f'{num_rows + 1} lines'
      which = ', this is the first' if count > 1 else ''
      notes.append(f'{self._places[text]}: {text} ({count} of {total}{which})')
    return notes


def of_files(
  files: Mapping[str, formats.Reader],
  name: str,
  index_dir: str | None = None,
  limit: int | None = None,
) -> list[FileIndex]:
  """Returns `scan` of each file, cached as long as the file is unchanged.

  Args:
    files: the reader of each path.
    name: what the files are together, for one cached file for all of them.
    index_dir: the folder of cached files; default: the user's cache folder.
    limit: how many rows of each file are read; default: all.
  """
  folder = index_dir or str(remembered.folder())
  digest = hashlib.sha256(f'{name}\n{limit}'.encode()).hexdigest()
  cache = os.path.join(folder, f'rows-{digest[:16]}.json')
  states = tuple(
    _State(path, reader, filesystem.state(reader.files(path)))
    for path, reader in files.items()
  )
  return [*of_states(states, cache, limit)]


class _State(NamedTuple):
  """A file with what changes when its content does."""

  path: str
  reader: formats.Reader
  state: str

  @property
  def key(self) -> str:
    return f'{_VERSION} {self.path} {self.reader} {self.state}'


@functools.lru_cache(maxsize=256)
def of_states(
  states: Sequence[_State], cache: str, limit: int | None
) -> Sequence[FileIndex]:
  """Loads the cached indexes of files in these states; scans the others."""
  stored = _stored(cache)
  indexes: dict[str, FileIndex] = {}
  for file in states:
    if file.key in stored:
      try:
        known = {**stored[file.key], 'reader': file.reader, 'path': file.path}
        indexes[file.key] = FileIndex(**known)
        continue
      except TypeError:
        pass  # the cache is damaged: scan the file
    indexes[file.key] = scan(file.path, file.reader, limit)
  if indexes.keys() - stored.keys():
    _store(cache, indexes)
  return tuple(indexes.values())


def _stored(cache: str) -> dict[str, Any]:
  """Returns the content of a cached file, or {} if it is missing or damaged."""
  stored = remembered.load(cache)
  return stored if isinstance(stored, dict) else {}


def _store(cache: str, indexes: Mapping[str, FileIndex]) -> None:
  stored = {}
  for key, index in indexes.items():
    stored[key] = {**vars(index)}
    del stored[key]['reader'], stored[key]['path']
  try:
    remembered.save(cache, stored)
  except OSError as error:
    setting = data_settings.name_of('index_dir')
    logging.warning(
      'row counts cannot be kept in %s: %s. Set %s to a folder that you may '
      'write to.',
      cache,
      error,
      setting,
    )
