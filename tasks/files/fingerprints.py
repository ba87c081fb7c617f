"""Fingerprints: whether the files behind an index are still what they were.

Files of up to 32 MB are told by all of their bytes, so that a copy, or a file
whose time alone has changed, keeps its index. Of larger ones, blocks all over
the file are read, and its times count too: a local file cannot be altered
without its change time (`st_ctime`) moving, whatever its size and its
modification time say.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from synth_mtf.errors import UserError
from synth_mtf.tasks.files import streams

_WHOLE_BYTES = 32 << 20
_BLOCKS = 256
_BLOCK_BYTES = 1 << 16
_FILES_OPENED = 64


class _State(NamedTuple):
  """What a file system knows of a file."""

  size: int
  modified: int
  changed: int


def of(paths: Sequence[str]) -> list[str | int]:
  """Returns what changes when a file does; last, a digest of the content.

  Of many files, the content of some is read, and the times of all count.

  Raises:
    UserError: a file cannot be read.
  """
  states = [_state(path) for path in paths]
  opened = _spread(len(paths), _FILES_OPENED)
  digest = hashlib.blake2b(digest_size=8)
  for i in opened:
    digest.update(_digest(paths[i], states[i]))
  names = '\n'.join(paths)
  digest.update(names.encode('utf-8') if len(paths) > 1 else b'')
  whole = len(opened) == len(paths) and all(map(_is_whole, states))
  times = [] if whole else [max(s.modified for s in states)]
  times += [] if whole else [max(s.changed for s in states)]
  size = sum(state.size for state in states)
  return [len(paths), size, *times, digest.hexdigest()]


def _is_whole(state: _State) -> bool:
  return state.size <= _WHOLE_BYTES


def _state(path: str) -> _State:
  try:
    if streams.is_local(path):
      stat = os.stat(path)
      return _State(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    stat = tf.io.gfile.stat(path)
    return _State(stat.length, stat.mtime_nsec, 0)
  except (OSError, tf.errors.OpError) as error:
    raise UserError(
      f'the data file {path} cannot be read: {error}; check that it is there, '
      'and its permissions.'
    ) from error


@functools.lru_cache(maxsize=4096)
def _digest(path: str, state: _State) -> bytes:
  """Returns a digest of the content, read once while the file is as it is."""
  digest = hashlib.blake2b(digest_size=8)
  with streams.open_raw(path) as stream:
    if _is_whole(state):
      while chunk := streams.read_chunk(stream, path, 1 << 20):
        digest.update(chunk)
      return digest.digest()
    for start in _spread(state.size - _BLOCK_BYTES + 1, _BLOCKS):
      stream.seek(start)
      digest.update(streams.read_chunk(stream, path, _BLOCK_BYTES))
  return digest.digest()


def _spread(count: int, most: int) -> list[int]:
  """Returns up to `most` of 0 ... count - 1, the first and the last too."""
  if count <= most:
    return list(range(count))
  return [i * (count - 1) // (most - 1) for i in range(most)]
