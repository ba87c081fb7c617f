"""What is known about a file after one pass: rows, blocks, faults.

The pass is made once: its result is kept as a small JSON file and used for as
long as the file does not change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf import atomic
from synth_mtf.tasks.files import blocks, fingerprints, streams
from synth_mtf.tasks.files.blocks import Block
from synth_mtf.tasks.files.formats import Reader
from synth_mtf.tasks.files.rows import DroppedRow, Oddity, Position, RowError

# Examples in a block. A short file has small blocks, so that shuffling them
# mixes the file, and its first rows come soon. With many blocks, their size is
# doubled, up to where starting one costs little compared with reading it.
_FEWEST_EXAMPLES = 16
_MOST_EXAMPLES = 256
_MANY_BLOCKS = 1024
_FAULTS_SHOWN = 20
_VERSION = 3
_DROPPED = 'a broken row; left out, as TensorFlow Datasets leaves it out'


@dataclasses.dataclass
class FileIndex:
  """The result of one pass over a file.

  Attributes:
    path: the file.
    num_examples: how many examples its good rows make.
    blocks: all of its rows in order, the bad ones included.
    faults: the first bad rows, one line of text each.
    num_faults: how many bad rows there are.
    notes: what is merely odd, each kind once: its first place, how often.
    digest: of the content of the files, sampled where they are large.
  """

  path: str
  num_examples: int
  blocks: list[Block]
  faults: list[str]
  num_faults: int
  notes: list[str]
  digest: str = ''


def describe_faults(faults: Iterable[str], count: int) -> str:
  """Joins the first faults of a file, and says how many more there are."""
  shown = list(faults)
  if count > len(shown):
    shown.append(f'... and {count - len(shown)} more')
  return '\n'.join(shown)


def scan(path: str, reader: Reader) -> FileIndex:
  """Reads every row of `path` once.

  Raises:
    UserError: the file cannot be read, or its header is not that of the format.
  """
  index = FileIndex(path, 0, [], [], 0, [])
  oddities: dict[str, tuple[str, int]] = {}  # text: first place, how often
  dropped = 0
  in_block = 0
  block_examples = _FEWEST_EXAMPLES

  def fault(error: RowError, offset: Position) -> None:
    index.num_faults += 1
    if len(index.faults) < _FAULTS_SHOWN:
      index.faults.append(blocks.locate(error, reader, path, offset))

  def odd(error: RowError, text: str, offset: Position) -> None:
    if text not in oddities:
      oddities[text] = reader.place(path, offset, error.line), 0
    place, count = oddities[text]
    oddities[text] = place, count + 1

  with reader.open(path) as stream:
    header = blocks.read_header(stream, reader, path)
    context = blocks.context_of(header, reader, path)
    oddity = header and reader.oddity(header)
    if oddity:
      odd(oddity, str(oddity), 0)
    for number, record in enumerate(
      blocks.records_of(stream, reader, None, fault)
    ):
      if not index.blocks or in_block >= block_examples:
        many = len(index.blocks) >= _MANY_BLOCKS
        if many and block_examples < _MOST_EXAMPLES:
          del index.blocks[1::2]
          block_examples *= 2
        index.blocks.append(Block(path, record.offset, None, number))
        in_block = 0
      oddity = reader.oddity(record)
      if oddity:
        odd(oddity, str(oddity), record.offset)
      for example in blocks.examples_of(reader, record, number, context):
        if not isinstance(example, RowError):
          in_block += 1
          index.num_examples += 1
        elif isinstance(example, Oddity):
          odd(example, str(example), record.offset)
        elif isinstance(example, DroppedRow) and dropped < reader.dropped_rows:
          dropped += 1
          odd(example, _DROPPED, record.offset)
        else:
          fault(example, record.offset)
    size = stream.offset
  ends = [block.start for block in index.blocks[1:]] + [size]
  index.blocks = [b._replace(end=end) for b, end in zip(index.blocks, ends)]
  index.notes = [
    f'{place}: {text} ({count} in the file, this is the first)'
    if count > 1
    else f'{place}: {text}'
    for text, (place, count) in oddities.items()
  ]
  return index


def cached_scan(path: str, reader: Reader, index_dir: str | None) -> FileIndex:
  """Returns `scan(path, reader)`, or what was kept if the file is unchanged."""
  cache = _cache_path(path, reader, index_dir)
  fingerprint = [_VERSION, *fingerprints.of(reader.files(path))]
  index = _load(cache, path, fingerprint)
  if index is None:
    index = scan(path, reader)
    index.digest = str(fingerprint[-1])
    _save(cache, fingerprint, index)
  return index


def _cache_path(path: str, reader: Reader, index_dir: str | None) -> str:
  folder = index_dir or os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'),
    'synth_mtf',
  )
  absolute = os.path.abspath(path) if streams.is_local(path) else path
  digest = hashlib.sha256(f'{absolute}\n{reader.key}'.encode()).hexdigest()
  return os.path.join(folder, f'{os.path.basename(path)}-{digest[:16]}.json')


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
    return None  # absent or damaged: it is made again


def _save(cache: str, fingerprint: Sequence[Any], index: FileIndex) -> None:
  stored = dataclasses.asdict(index)
  stored['fingerprint'] = list(fingerprint)
  stored['blocks'] = [block[1:] for block in index.blocks]
  try:
    tf.io.gfile.makedirs(os.path.dirname(cache))
    atomic.write(cache, json.dumps(stored))
  except (OSError, tf.errors.OpError) as error:
    logging.warning('row counts cannot be kept in %s: %s', cache, error)
