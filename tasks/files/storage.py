"""Finds and opens files, local or remote, plain or gzip."""

import contextlib
import gzip
import hashlib
import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow.compat.v2 as tf

from synth_mtf import filesystem
from synth_mtf.errors import UserError

_BUFFER_BYTES = 1 << 20


def is_gzip(path: str) -> bool:
  """Whether `path` is decompressed as it is read."""
  return path.endswith('.gz')


def is_file(path: str) -> bool:
  """Whether there is a file; rejects a folder, or a pipe, which would block."""
  if '://' in path:
    with explained(path):
      return tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
  with explained(path):
    try:
      mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
      folder = os.path.dirname(path) or '.'
      link_to_nowhere = os.path.lexists(path)
      file_for_folder = os.path.lexists(folder) and not os.path.isdir(folder)
      if link_to_nowhere or file_for_folder:
        raise
      return False
  if not stat.S_ISREG(mode):
    kind = 'a folder' if stat.S_ISDIR(mode) else 'a pipe, a socket or a device'
    raise UserError(f'{path} is {kind}; expected a regular file.')
  return True


def is_folder(path: str) -> bool:
  """Whether there is a folder; rejects a file in its place."""
  path = path.rstrip('/')
  if tf.io.gfile.isdir(path):
    return True
  if is_file(path):
    raise UserError(f'{path} is a file; expected a folder.')
  return False


def names(folder: str) -> list[str]:
  """Returns the names in a folder; none if it does not exist."""
  with explained(folder):
    return tf.io.gfile.listdir(folder) if is_folder(folder) else []


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
  """Converts errors of reading a file or a folder to a UserError."""
  try:
    yield
  except UnicodeDecodeError as error:
    raise UserError(
      f'{path}: {error.object[:60]!r} is not UTF-8; convert or rename it.'
    ) from error
  except (OSError, EOFError, zlib.error, tf.errors.OpError) as error:
    raise UserError(
      f'{path} cannot be read: {error}. Check that it exists and is whole, and '
      'that you may read it.'
    ) from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[Any]:
  """Opens a file; errors while it is open are raised as a UserError."""
  with explained(path), _open(path) as raw:
    if filesystem.is_lfs_pointer(raw.peek()):
      raise UserError(f'{path} is {filesystem.LFS_POINTER}')
    yield gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw


def _open(path: str) -> io.BufferedReader:
  if '://' in path:
    return io.BufferedReader(_RemoteFile(path), _BUFFER_BYTES)
  is_file(path)  # raises on a pipe, which would block
  return open(path, 'rb')


class _RemoteFile(io.RawIOBase):
  """Wraps a file of tf.io.gfile, which drops carriage returns from lines."""

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


def lines_before(path: str, offset: int) -> int:
  """Counts the lines before an offset by reading the file up to it."""
  lines = 0
  with reading(path) as stream:
    while chunk := stream.read(min(offset, _BUFFER_BYTES)):
      lines += chunk.count(b'\n')
      offset -= len(chunk)
  return lines


def find(folder: str, pattern: str) -> list[str]:
  """Finds the distinct files below `folder` that match, in sorted order.

  Args:
    folder: where to search; not a pattern.
    pattern: path, relative to `folder`, absolute or in a bucket; `*` matches
      within a name, `**/` zero or more folders. A trailing `/` denotes a
      folder.
  """
  if os.path.isabs(pattern) or '://' in pattern:
    folder = ''
  path = os.path.join(folder, pattern)
  if pattern.endswith('/'):
    return [path] if is_folder(path) else []
  if '*' not in pattern:
    return [path] if is_file(path) else []
  wanted = re.compile(
    re.escape(pattern).replace(r'\*\*/', '(?:.*/)?').replace(r'\*', '[^/]*')
  )
  start = len(os.path.join(folder, ''))
  root = os.path.join(folder, pattern[: pattern.index('*')].rpartition('/')[0])
  with explained(root):
    found = {x: y for x, y in _files_below(root) if wanted.fullmatch(x[start:])}
  # The last path of a file is kept: itself rather than a link to it.
  paths = sorted(found, key=lambda x: (os.path.islink(x), x), reverse=True)
  distinct = {found[path]: path for path in paths if is_file(path)}
  return sorted(distinct.values())


def _files_below(root: str) -> Iterator[tuple[str, str]]:
  """Yields the files below a folder, with the path without links of each.

  Each folder is visited only once despite links.
  """
  seen = set()
  for parent, folders, names in _walk(root):
    real = os.path.realpath(parent)
    if real in seen:
      folders.clear()
      continue
    seen.add(real)
    # Visit real folders before links to them.
    folders.sort(key=lambda name: (os.path.islink(f'{parent}/{name}'), name))
    for name in names:
      os.fsencode(name).decode()  # TensorFlow takes no other names
      path = os.path.join(parent, name)
      is_link = os.path.islink(path)
      yield path, os.path.realpath(path) if is_link else f'{real}/{name}'


def _walk(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
  """Walks through folders; for local ones, without a call for each file."""
  if '://' in root:
    return tf.io.gfile.walk(root)
  return os.walk(root, onerror=_raise_unless_missing, followlinks=True)


def _raise_unless_missing(error: OSError) -> None:
  if not isinstance(error, FileNotFoundError):
    raise error


def _size_and_times(path: str) -> Sequence[int]:
  with explained(path):
    if '://' in path:
      remote = tf.io.gfile.stat(path)
      return remote.length, remote.mtime_nsec
    local = os.stat(path)
  # The change time updates even if the modification time is preserved.
  return local.st_size, local.st_mtime_ns, local.st_ctime_ns


def total_bytes(paths: Iterable[str]) -> int:
  """Returns the total size of the files."""
  return sum(_size_and_times(path)[0] for path in paths)


def state(paths: Iterable[str]) -> str:
  """Returns a digest of sizes and times that changes when a file changes."""
  states = [(path, *_size_and_times(path)) for path in paths]
  return hashlib.sha256(repr(states).encode()).hexdigest()
