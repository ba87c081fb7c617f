"""Files as streams of bytes: local or remote, plain or gzip, piece by piece."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Union

import tensorflow.compat.v2 as tf

from synth_mtf.errors import UserError
from synth_mtf.tasks.files.rows import Record

_CHUNK_BYTES = 1 << 20
# The size of a stream's first read: a block is often no longer than that.
_FIRST_BYTES = 1 << 14

BinaryFile = Union[io.FileIO, '_GFile', gzip.GzipFile]


class ByteStream:
  """Reads a file piece by piece from an offset on.

  Attributes:
    path: the file.
    offset: position of the next byte; in a gzip file, of the unpacked bytes.
    buffer: the bytes that are in memory.
    start: where in `buffer` the next byte is.
  """

  def __init__(self, path: str, offset: int = 0) -> None:
    self.path = path
    self.offset = offset
    self.buffer = b''
    self.start = 0
    self._file = open_binary(path, offset)
    self._chunk_bytes = _FIRST_BYTES

  def __enter__(self) -> ByteStream:
    return self

  def __exit__(self, *unused_error: object) -> None:
    self._file.close()

  def more(self) -> bool:
    """Adds a piece of the file to `buffer`; False at the end of the file."""
    chunk = read_chunk(self._file, self.path, self._chunk_bytes)
    self._chunk_bytes = min(2 * self._chunk_bytes, _CHUNK_BYTES)
    self.buffer = self.buffer[self.start :] + chunk
    self.start = 0
    return bool(chunk)

  def take(self, size: int) -> bytes:
    """Returns the next `size` bytes, which are in `buffer`."""
    data = self.buffer[self.start : self.start + size]
    self.start += size
    self.offset += size
    return data

  def readline(self) -> bytes:
    """Returns the next line with its line end; b'' at the end of the file."""
    searched = 0
    while True:
      end = self.buffer.find(b'\n', self.start + searched)
      if end >= 0:
        return self.take(end + 1 - self.start)
      searched = len(self.buffer) - self.start
      if not self.more():
        return self.take(searched)


class ParallelStream:
  """Reads two files in step, a line of each at a time.

  Attributes:
    path: the first file.
    offset: the positions of the next lines.
  """

  def __init__(
    self, path: str, other: str, offset: Sequence[int] = (0, 0)
  ) -> None:
    self.path = path
    self._streams = [
      ByteStream(p, start) for p, start in zip((path, other), offset)
    ]

  def __enter__(self) -> ParallelStream:
    return self

  def __exit__(self, *unused_error: object) -> None:
    for stream in self._streams:
      stream.__exit__()

  @property
  def offset(self) -> list[int]:
    """The positions of the next lines."""
    return [stream.offset for stream in self._streams]

  def readlines(self) -> tuple[bytes, bytes]:
    """Returns the next line of each file; b'' at the end of one."""
    first, second = self._streams
    return first.readline(), second.readline()


class FolderStream:
  """Reads small files one after the other.

  Attributes:
    path: the folder.
    offset: the position of the next file among their sorted names.
  """

  def __init__(self, path: str, names: Sequence[str], offset: int = 0) -> None:
    self.path = path
    self.offset = offset
    self._names = names

  def __enter__(self) -> FolderStream:
    return self

  def __exit__(self, *unused_error: object) -> None:
    pass

  def readfile(self) -> Record | None:
    """Returns the next file; None after the last."""
    if self.offset >= len(self._names):
      return None
    path = os.path.join(self.path, self._names[self.offset])
    with open_binary(path) as stream:
      record = Record(stream.read(), self.offset, path)
    self.offset += 1
    return record


def open_binary(path: str, offset: int = 0) -> BinaryFile:
  """Opens a local or remote file, unpacked where its name ends in `.gz`."""
  raw = open_raw(path)
  stream = gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw
  if offset:
    stream.seek(offset)
  return stream


def open_raw(path: str) -> BinaryFile:
  """Opens a local or remote file as it is."""
  try:
    # A local file read by Python itself costs a tenth of tf.io.gfile's time.
    return io.FileIO(path) if _is_there(path) else _GFile(path)
  except (OSError, tf.errors.OpError) as error:
    raise UserError(f'{path} cannot be read: {error}') from error


def is_file(path: str) -> bool:
  """Whether `path` is a file of this machine or another.

  Raises:
    UserError: it is a pipe, a socket or a device, which would be waited for.
  """
  if not is_local(path):
    return tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
  if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
    raise UserError(
      f'{path} is a pipe, a socket or a device; expected a file. Put one there.'
    )
  return os.path.isfile(path)


def _is_there(path: str) -> bool:
  return is_local(path) and (is_file(path) or os.path.exists(path))


def read_chunk(stream: BinaryFile, path: str, size: int) -> bytes:
  """Reads up to `size` bytes, b'' at the end of the file."""
  try:
    return stream.read(size)
  except (EOFError, OSError, zlib.error, tf.errors.OpError) as error:
    if not is_gzip(path):
      raise UserError(f'{path} cannot be read: {error}') from error
    raise UserError(
      f'{path}: the gzip stream is damaged after line '
      f'{1 + _readable_lines(path)} of its text ({error}); expected a complete '
      'file. Copy it again.'
    ) from error


def is_local(path: str) -> bool:
  """Whether `path` is a file on this machine."""
  return '://' not in path


def is_gzip(path: str) -> bool:
  """Whether `path` is unpacked while it is read."""
  return path.endswith('.gz')


def find(folder: str, pattern: str) -> list[str]:
  """Returns the files below `folder` that match, sorted, each of them once.

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
  if not tf.io.gfile.isdir(root):
    return []
  wanted = re.compile(
    re.escape(pattern).replace(r'\*\*/', '(?:.*/)?').replace(r'\*', '[^/]*')
  )
  prefix = len(os.path.join(folder, ''))
  matching = [
    path for path in _files_below(root) if wanted.fullmatch(path[prefix:])
  ]
  once: dict[str, str] = {}
  for path in sorted(matching, key=lambda path: (os.path.islink(path), path)):
    real = os.path.realpath(path) if is_local(path) else path
    if is_file(path):
      once.setdefault(real, path)
  return sorted(once.values())


def _files_below(root: str) -> Iterator[str]:
  """Yields what is in a folder and those below it, each folder once.

  A folder that several links lead to, or a link that leads back up, would
  otherwise bring its files again and again. Links come after what is itself
  there.
  """
  if not is_local(root):
    for parent, _, names in tf.io.gfile.walk(root):
      yield from (os.path.join(parent, name) for name in names)
    return
  folders, seen = [root], set()
  links: list[str] = []
  while folders or links:
    folder = folders.pop() if folders else links.pop(0)
    real = os.path.realpath(folder)
    if real in seen:
      continue
    seen.add(real)
    try:
      entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
      raise UserError(f'{folder} cannot be read: {error}') from error
    for entry in entries:
      if not entry.is_dir():
        yield entry.path
      elif entry.is_symlink():
        links.append(entry.path)
      else:
        folders.append(entry.path)


def names_in(folder: str) -> list[str]:
  """Returns the names in a folder, [] if there is none."""
  return tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []


def total_bytes(paths: Iterable[str]) -> int:
  """Returns the total length of the files."""
  return sum(tf.io.gfile.stat(path).length for path in paths)


def line_number(path: str, offset: int) -> int:
  """Returns the 1-based number of the line that starts at `offset`.

  Found by reading the file up to there, a price that only a fault has to pay.
  """
  lines, left = 1, offset
  with open_binary(path) as stream:
    while left > 0:
      chunk = read_chunk(stream, path, min(left, _CHUNK_BYTES))
      if not chunk:
        break
      lines += chunk.count(b'\n')
      left -= len(chunk)
  return lines


def _readable_lines(path: str) -> int:
  lines = 0
  with open_binary(path) as stream:
    while True:
      try:
        chunk = stream.read(1 << 12)
      except (EOFError, OSError, zlib.error):
        return lines
      if not chunk:
        return lines
      lines += chunk.count(b'\n')


class _GFile(io.RawIOBase):
  """A file of tf.io.gfile that gzip can read and that stays open."""

  def __init__(self, path: str) -> None:
    if not tf.io.gfile.exists(path):
      raise FileNotFoundError('no such file')
    self._file = tf.io.gfile.GFile(path, 'rb')

  def readable(self) -> bool:
    return True

  def seekable(self) -> bool:
    return True

  def read(self, size: int = -1) -> bytes:
    return self._file.read(size)

  def readinto(self, buffer: Any) -> int:
    data = self._file.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    self._file.seek(offset=offset, whence=whence)
    return self._file.tell()

  def tell(self) -> int:
    return self._file.tell()

  def close(self) -> None:
    if not self.closed:
      self._file.close()
    super().close()
