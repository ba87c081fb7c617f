"""Finds and opens files, local or remote, plain or gzip."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

import tensorflow.compat.v2 as tf

from synth_mtf.errors import UserError

_BUFFER_BYTES = 1 << 20
_ERRORS = (EOFError, OSError, zlib.error, tf.errors.OpError)


def is_local(path: str) -> bool:
  """Whether `path` is on this machine."""
  return '://' not in path


def is_gzip(path: str) -> bool:
  """Whether `path` is decompressed as it is read."""
  return path.endswith('.gz')


def is_file(path: str) -> bool:
  """Whether `path` is a file.

  Raises:
    UserError: it is a pipe, a socket or a device, which would block.
  """
  if not is_local(path):
    return tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
  if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
    raise UserError(
      f'{path} is a pipe, a socket or a device; expected a regular file.'
    )
  return os.path.isfile(path)


@contextlib.contextmanager
def reading(path: str) -> Iterator[BinaryIO]:
  """Opens a file and turns whatever goes wrong with it into a UserError."""
  try:
    with _open(path) as stream:
      yield stream
  except _ERRORS as error:
    if not is_gzip(path) or isinstance(error, FileNotFoundError):
      raise UserError(f'{path} cannot be read: {error}') from error
    raise UserError(
      f'{path}: the gzip stream is damaged after line '
      f'{1 + _readable_lines(path)} of its text ({error}); expected a complete '
      'file. Copy it again.'
    ) from error


def _open(path: str) -> Any:
  if is_local(path):
    is_file(path)  # a pipe would block
    return gzip.open(path) if is_gzip(path) else open(path, 'rb')
  raw = io.BufferedReader(_RemoteFile(path), _BUFFER_BYTES)
  return gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw


class _RemoteFile(io.RawIOBase):
  """A file of tf.io.gfile as one of Python's."""

  def __init__(self, path: str) -> None:
    self._file = tf.io.gfile.GFile(path, 'rb')

  def readable(self) -> bool:
    return True

  def seekable(self) -> bool:
    return True

  def readinto(self, buffer: Any) -> int:
    data = self._file.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    self._file.seek(offset=offset, whence=whence)
    return self._file.tell()

  def close(self) -> None:
    self._file.close()
    super().close()


def _readable_lines(path: str) -> int:
  lines = 0
  with contextlib.suppress(*_ERRORS), _open(path) as stream:
    while chunk := stream.read1(1 << 12):
      lines += chunk.count(b'\n')
  return lines


def lines_before(path: str, offset: int) -> int:
  """Counts the lines before an offset, by reading the file up to there."""
  lines = 0
  with reading(path) as stream:
    while chunk := stream.read(min(offset, _BUFFER_BYTES)):
      lines += chunk.count(b'\n')
      offset -= len(chunk)
  return lines


def find(folder: str, pattern: str) -> list[str]:
  """Finds the files below `folder` that match, sorted, each of them once.

  Args:
    folder: where to look; taken literally.
    pattern: relative path; `*` matches within a name, `**/` any number of
      folders, even none. With a `/` at the end it is a folder.
  """
  path = os.path.join(folder, pattern)
  if pattern.endswith('/'):
    return [path] if tf.io.gfile.isdir(path) else []
  if '*' not in pattern:
    return [path] if is_file(path) else []
  root = os.path.join(folder, pattern[: pattern.index('*')].rpartition('/')[0])
  wanted = re.compile(
    re.escape(pattern).replace(r'\*\*/', '(?:.*/)?').replace(r'\*', '[^/]*')
  )
  prefix = len(os.path.join(folder, ''))
  matching = [
    path for path in _files_below(root) if wanted.fullmatch(path[prefix:])
  ]
  distinct: dict[str, str] = {}
  for path in sorted(matching, key=lambda path: (os.path.islink(path), path)):
    if is_file(path):
      real = os.path.realpath(path) if is_local(path) else path
      distinct.setdefault(real, path)
  return sorted(distinct.values())


def _files_below(root: str) -> Iterator[str]:
  """Yields the files of a folder; one that links lead back to only once."""
  walk = (
    functools.partial(os.walk, onerror=_refuse, followlinks=True)
    if is_local(root)
    else tf.io.gfile.walk
  )
  seen = set()
  for parent, folders, names in walk(root) if tf.io.gfile.isdir(root) else ():
    real = os.path.realpath(parent) if is_local(parent) else parent
    if real in seen:
      folders.clear()
      continue
    seen.add(real)
    # Real folders come before the links to them.
    folders.sort(key=lambda name: (os.path.islink(f'{parent}/{name}'), name))
    yield from (os.path.join(parent, name) for name in names)


def _refuse(error: OSError) -> NoReturn:
  raise UserError(f'{error.filename} cannot be read: {error}') from error


def names_in(folder: str) -> list[str]:
  """Lists the names in a folder; [] if there is none."""
  return tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []


def total_bytes(paths: Iterable[str]) -> int:
  """Returns the total size of the files."""
  return sum(tf.io.gfile.stat(path).length for path in paths)


def state(paths: Sequence[str]) -> str:
  """Returns a digest of names, sizes and times, which changes when a file does.

  Raises:
    UserError: a file is missing.
  """
  found = []
  for path in paths:
    try:
      if is_local(path):
        stat = os.stat(path)
        # The change time moves even if a file keeps its modification time.
        found.append((path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
      else:
        remote = tf.io.gfile.stat(path)
        found.append((path, remote.length, remote.mtime_nsec, 0))
    except _ERRORS as error:
      raise UserError(
        f'the data file {path} cannot be read: {error}; check that it exists '
        'and its permissions.'
      ) from error
  return hashlib.sha256(repr(found).encode()).hexdigest()
