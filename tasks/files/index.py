"""What one pass over a file finds: its number of examples, parts and faults.

The result is kept as a small JSON file and used until the file changes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf import atomic
from synth_mtf.tasks.files import storage
from synth_mtf.tasks.files.formats import (
  DroppedRow,
  Example,
  Header,
  Oddity,
  Position,
  Reader,
  Record,
  RowError,
)

# A short file has small parts, so that shuffling them mixes the file. A file
# with many parts has larger ones, up to where opening one costs little compared
# with reading it.
_LEAST_EXAMPLES = 16
_MOST_EXAMPLES = 256
_MANY_PARTS = 1024
_FAULTS_SHOWN = 20
_VERSION = 4
_DROPPED = 'a broken row; left out, as TensorFlow Datasets leaves it out'


class Part(NamedTuple):
  """Rows of a file that can be read on their own.

  Attributes:
    path: the file.
    start: where the first row starts.
    end: where the next part starts; None for the last one.
    number: how many rows of the file come before it.
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
    parts: all of its rows in order, the bad ones included.
    faults: the first bad rows, one line of text each.
    num_faults: how many bad rows there are.
    notes: what is odd, each kind once: its first place and the count.
  """

  path: str
  num_examples: int = 0
  parts: list[Part] = dataclasses.field(default_factory=list)
  faults: list[str] = dataclasses.field(default_factory=list)
  num_faults: int = 0
  notes: list[str] = dataclasses.field(default_factory=list)

  def describe_faults(self) -> str:
    """Returns the first faults, one per line, and how many more there are."""
    more = self.num_faults - len(self.faults)
    return '\n'.join([*self.faults, *[f'... and {more} more'] * (more > 0)])


def read(
  reader: Reader, part: Part, header: Header
) -> Iterator[tuple[Record, Sequence[Example | RowError]]]:
  """Yields each row of a part with its examples and faults."""
  try:
    with reader.open(part.path, part.start, part.end) as (stream, start):
      records = reader.records(stream, start)
      for number, record in enumerate(records, part.number):
        try:
          yield record, reader.parse(record, number, header.columns)
        except RowError as error:
          yield record, [error]
  except RowError as error:
    yield Record(b'', part.start), [error]


def scan(path: str, reader: Reader) -> FileIndex:
  """Reads every row of `path` once.

  Raises:
    UserError: the file cannot be read, or its header is not that of the format.
  """
  index = FileIndex(path)
  oddities: dict[str, tuple[str, int]] = {}  # text: first place, count
  dropped = 0

  def report(item: RowError, start: Position) -> None:
    nonlocal dropped
    text = str(item)
    if isinstance(item, DroppedRow) and dropped < reader.dropped_rows:
      dropped += 1
      text = _DROPPED
    elif not isinstance(item, Oddity):
      index.num_faults += 1
      if len(index.faults) < _FAULTS_SHOWN:
        index.faults.append(f'{reader.place(path, start, item)}: {item}')
      return
    place, count = oddities.get(text) or (reader.place(path, start, item), 0)
    oddities[text] = place, count + 1

  header = reader.read_header(path)
  if header.oddity:
    report(header.oddity, 0)
  starts: list[tuple[Position, int]] = []
  in_part = 0
  part_examples = _LEAST_EXAMPLES
  whole = Part(path, header.size, None, 0)
  for number, (record, items) in enumerate(read(reader, whole, header)):
    if not starts or in_part >= part_examples:
      if len(starts) >= _MANY_PARTS and part_examples < _MOST_EXAMPLES:
        del starts[1::2]
        part_examples *= 2
      starts.append((record.start, number))
      in_part = 0
    oddity = reader.oddity(record)
    for item in [oddity, *items] if oddity else items:
      if isinstance(item, RowError):
        report(item, record.start)
      else:
        in_part += 1
        index.num_examples += 1
  ends = [start for start, _ in starts[1:]] + [None]
  index.parts = [
    Part(path, start, end, number) for (start, number), end in zip(starts, ends)
  ]
  index.notes = [
    f'{place}: {text}'
    + f' ({count} in the file, this is the first)' * (count > 1)
    for text, (place, count) in oddities.items()
  ]
  return index


def of_file(path: str, reader: Reader, index_dir: str | None) -> FileIndex:
  """Returns `scan(path, reader)`, or what was kept if the file is unchanged.

  It is kept in `index_dir`, by default the user's cache folder.
  """
  folder = index_dir or os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'),
    'synth_mtf',
  )
  absolute = os.path.abspath(path) if storage.is_local(path) else path
  digest = hashlib.sha256(f'{absolute}\n{reader.key}'.encode()).hexdigest()
  cache = os.path.join(folder, f'{os.path.basename(path)}-{digest[:16]}.json')
  state = f'{_VERSION} {storage.state(reader.files(path))}'
  return of_state(path, reader, cache, state)


@functools.lru_cache(maxsize=256)
def of_state(path: str, reader: Reader, cache: str, state: str) -> FileIndex:
  """Loads the index of a file in that state, or makes it and keeps it."""
  try:
    with tf.io.gfile.GFile(cache) as stream:
      stored = json.load(stream)
    if stored.pop('state') == state:
      stored['parts'] = [Part(path, *part) for part in stored['parts']]
      return FileIndex(path, **stored)
  except (OSError, ValueError, KeyError, TypeError, tf.errors.OpError):
    pass  # absent or damaged: the file is read again
  index = scan(path, reader)
  stored = {**dataclasses.asdict(index), 'state': state}
  del stored['path']
  stored['parts'] = [part[1:] for part in index.parts]
  try:
    tf.io.gfile.makedirs(os.path.dirname(cache))
    atomic.write(cache, json.dumps(stored))
  except (OSError, tf.errors.OpError) as error:
    logging.warning('row counts cannot be kept in %s: %s', cache, error)
  return index
