"""Files and folders, local or in a bucket (`scheme://...`).

TensorFlow reads buckets, and is imported for them alone: its import takes
longer than most commands.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import IO, Any

from synth_mtf.errors import UserError

# What a file is if `is_lfs_pointer`, and what to do.
LFS_POINTER = (
  'a pointer of Git LFS; expected the file itself: run `git lfs pull` where it '
  'was cloned'
)
_MOST_FILES = 20_000


def is_bucket(path: str) -> bool:
  """Whether a path is in a bucket, or names another scheme of TensorFlow."""
  return '://' in path


def exists(path: str) -> bool:
  """Whether there is a file or a folder."""
  if is_bucket(path):
    with _as_os_errors() as gfile:
      return gfile.exists(path)
  return os.path.exists(path)


def is_folder(path: str) -> bool:
  """Whether there is a folder."""
  if is_bucket(path):
    with _as_os_errors() as gfile:
      try:  # `isdir` takes every error, such as of the network, for no folder
        return gfile.stat(path).is_directory
      except _tensorflow().errors.NotFoundError:
        return False
  return os.path.isdir(path)


def names(folder: str) -> list[str]:
  """Returns the names in a folder, in no order; none without a folder."""
  if not is_folder(folder):
    return []
  if is_bucket(folder):
    with _as_os_errors() as gfile:
      return [name.rstrip('/') for name in gfile.listdir(folder)]
  return os.listdir(folder)


def subfolders(folder: str) -> list[str]:
  """Returns the names of the folders in a folder, sorted; none without it."""
  return sorted(
    name for name in names(folder) if is_folder(os.path.join(folder, name))
  )


def size(path: str) -> int:
  """Returns the bytes of a file."""
  if is_bucket(path):
    with _as_os_errors() as gfile:
      return gfile.stat(path).length
  return os.stat(path).st_size


def state(*paths: str) -> list[tuple[str, int, int]] | None:
  """Returns name, size and time of change of all local files below paths.

  Returns None if there are more than 20,000, or if a path is in a bucket or
  cannot be read.
  """
  files: list[tuple[str, int, int]] = []
  seen = set()
  remaining = [os.path.expanduser(path) for path in paths]
  while remaining:
    path = remaining.pop()
    try:
      status = os.stat(path)
      if os.path.isdir(path):
        place = (status.st_dev, status.st_ino)  # links may lead back
        if place not in seen:
          seen.add(place)
          remaining += [os.path.join(path, name) for name in os.listdir(path)]
        continue
    except OSError:
      return None
    files.append((path, status.st_size, status.st_mtime_ns))
    if len(files) > _MOST_FILES:
      return None
  return sorted(files)


def make_folder(path: str) -> None:
  """Makes a folder, and those above it, unless it exists."""
  if is_bucket(path):
    with _as_os_errors() as gfile:
      gfile.makedirs(path)
  else:
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
  """Removes a file, or a folder with all that is in it."""
  is_tree = is_folder(path) and not os.path.islink(path)
  if is_bucket(path):
    with _as_os_errors() as gfile:
      if is_tree:
        gfile.rmtree(path)
      else:
        gfile.remove(path)
  elif is_tree:
    shutil.rmtree(path)
  else:
    os.remove(path)


@contextlib.contextmanager
def reading(path: str) -> Iterator[IO[bytes]]:
  """Yields a stream of a file's bytes."""
  if is_bucket(path):
    with _as_os_errors() as gfile, gfile.GFile(path, 'rb') as stream:
      yield stream
  else:
    with open(path, 'rb') as stream:
      yield stream


@contextlib.contextmanager
def writing_to_bucket(path: str, mode: str) -> Iterator[IO[Any]]:
  """Yields a stream that writes a file in a bucket."""
  with _as_os_errors() as gfile, gfile.GFile(path, mode) as stream:
    yield stream


def is_lfs_pointer(data: bytes) -> bool:
  """Whether a file that begins with these bytes only points to its content."""
  return data.startswith(b'version https://git-lfs.github.com/spec/')


def read(path: str) -> bytes:
  """Returns the bytes of a file."""
  with reading(path) as stream:
    return stream.read()


def text(path: str) -> str | None:
  """Returns the text of a file in UTF-8, or None if there is none.

  Raises:
    UserError: it cannot be read.
  """
  if not exists(path):
    return None
  try:
    return read(path).decode()
  except (OSError, UnicodeDecodeError) as error:
    raise UserError(f'{path} cannot be read: {error}') from error


@contextlib.contextmanager
def _as_os_errors() -> Iterator[Any]:
  """Yields TensorFlow's file system, whose errors are raised as an OSError."""
  tf = _tensorflow()
  try:
    yield tf.io.gfile
  except tf.errors.OpError as error:
    raise OSError(' '.join(error.message.split())) from error


def _tensorflow() -> Any:
  """Imports TensorFlow, which otherwise prints what it finds."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  import tensorflow

  return tensorflow
