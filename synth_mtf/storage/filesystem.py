"""Finds, lists and reads what a flag, a binding or a task file names.

A path is local or in a bucket (`scheme://...`). TensorFlow reads buckets, and
is imported only for them: its import takes longer than most commands.

What cannot be read raises an `Unreadable` with the path, the cause and what to
do, wherever the file is; `named_by` adds the flag or the setting. A file is
read into memory only if it is not larger than files of its kind are. Hidden
names, which editors, archives and systems leave behind, are not listed.
"""

import contextlib
import difflib
import gzip
import hashlib
import io
import os
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from synth_mtf.errors import UserError

# The most bytes of a file that is read into memory, by what it is: one that
# people write or that describes a model, a record of many results, and a
# document that is one row of a task.
SETTINGS_BYTES = 16 << 20
RECORDS_BYTES = 256 << 20
DOCUMENT_BYTES = 1 << 30

_BUFFER_BYTES = 1 << 20
_MOST_FILES = 20_000
_MOST_SHOWN = 5
_LFS_POINTER = b'version https://git-lfs.github.com/spec/'
# TensorFlow takes a name with one of these for a pattern.
_PATTERNS = '*?[\\'
_CHECKPOINT_FILE = re.compile(r'model\.ckpt-\d+\.(index|meta|data-[\d\w-]+)')


T5_BUCKET = 'gs://t5-data/'
# It answers 403 to everybody.
T5_ADVICE = (
  "T5's own bucket has been closed since February 2026. A folder of a T5 of "
  'Hugging Face has both of what was there: its spiece.model is the vocabulary '
  'cc_all.32000 (--vocabulary=FOLDER/spiece.model), and `synth-mtf checkpoint '
  'import --from=hf` makes a checkpoint of its weights (docs/migration.md).'
)
# What T5 reads by default.
T5_VOCABULARY = f'{T5_BUCKET}vocabs/cc_all.32000/sentencepiece.model'
# With the cause and the path.
NO_T5_VOCABULARY = (
  "T5's own vocabulary {1} cannot be read: {0}. Give the one that the model "
  'was trained with, --vocabulary=FILE.model or --vocabulary=bytes, and a gin '
  f'file with its task: a run file, or <run>/operative_config.gin. {T5_ADVICE}'
)


class Unreadable(UserError, OSError):
  """What a user named cannot be read or written; the message has the path.

  Attributes:
    is_named: whether the message begins with what brought the path: a flag, a
      binding, or the line of a task file.
  """

  def __init__(self, message: str, setting: str = '') -> None:
    super().__init__(f'{setting}: {message}' if setting else message)
    self.is_named = bool(setting)


@contextlib.contextmanager
def named_by(setting: str) -> Iterator[None]:
  """Adds what brought a path to an `Unreadable` that is raised inside.

  Of several around each other, the innermost knows best.
  """
  try:
    yield
  except Unreadable as error:
    if error.is_named:
      raise
    raise Unreadable(str(error), setting) from error


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
  """Raises an `Unreadable` for an error of reading a file or a folder."""
  try:
    yield
  except Unreadable:
    raise
  except UnicodeDecodeError as error:
    raise Unreadable(
      f'{path} cannot be read: {error}. Expected text in UTF-8: convert it.'
    ) from error
  except (OSError, EOFError, zlib.error) as error:
    raise Unreadable(_message(path, str(error))) from error
  except Exception as error:
    if not _is_from_tensorflow(error):
      raise
    raise Unreadable(_message(path, _cause(error))) from error


def _message(path: str, cause: str) -> str:
  advice = 'Check that it exists and is whole, and that you may read it.'
  if path.startswith(T5_BUCKET):
    advice = T5_ADVICE
  elif is_bucket(path):
    advice = (
      'Check its name, the network and your permission to read it (for gs://, '
      '`gcloud auth application-default login`).'
    )
  return f'{path} cannot be read: {cause}. {advice}'


def _cause(error: Any) -> str:
  """Returns what an error of TensorFlow says; of `ram://`, that is nothing."""
  return ' '.join(error.message.split()) or type(error).__name__


def _is_from_tensorflow(error: BaseException) -> Any:
  tf = sys.modules.get('tensorflow')  # not imported, it raised nothing
  return tf is not None and isinstance(error, tf.errors.OpError)


def is_bucket(path: str) -> bool:
  """Whether a path is in a bucket, or names another scheme of TensorFlow."""
  return '://' in path


def join(folder: str, path: str) -> str:
  """Returns a path that is relative to a folder, or else as it is."""
  return path if is_bucket(path) else os.path.join(folder, path)


def exists(path: str) -> bool:
  """Whether there is a file or a folder."""
  if is_bucket(path):
    with explained(path):
      return _gfile().exists(path)
  return os.path.exists(path)


def is_folder(path: str) -> bool:
  """Whether there is a folder."""
  if not is_bucket(path):
    return os.path.isdir(path)
  with explained(path):
    gfile = _gfile()
    try:  # `isdir` takes every error, such as of the network, for no folder
      return gfile.stat(path).is_directory
    except sys.modules['tensorflow'].errors.NotFoundError:
      return False


def has_file(path: str) -> bool:
  """Whether there is a file; rejects a folder, or a pipe, which would block."""
  if is_bucket(path):
    return exists(path) and not is_folder(path)
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
    raise Unreadable(f'{path} is {kind}; expected a regular file.')
  return True


def has_folder(path: str) -> bool:
  """Whether there is a folder; rejects a file in its place."""
  path = path.rstrip('/')
  if is_folder(path):
    return True
  if has_file(path):
    raise Unreadable(f'{path} is a file; expected a folder.')
  return False


def is_hidden(name: str) -> bool:
  """Whether a name is litter, such as `.git`, `._a.txt` and `__MACOSX`."""
  return name.startswith('.') or name == '__MACOSX'


def names(folder: str) -> list[str]:
  """Returns the names in a folder that are not hidden, in no order.

  There are none without a folder.
  """
  if not is_folder(folder):
    return []
  with explained(folder):
    if is_bucket(folder):
      found = [name.rstrip('/') for name in _gfile().listdir(folder)]
    else:
      found = os.listdir(folder)
  return [name for name in found if not is_hidden(name)]


def subfolders(folder: str) -> list[str]:
  """Returns the names of the folders in a folder, sorted; none without it."""
  return sorted(
    name for name in names(folder) if is_folder(os.path.join(folder, name))
  )


def contents(folder: str) -> str:
  """Says what a folder holds."""
  found = sorted(names(folder))
  if not found:
    return f'{folder} is empty' if exists(folder) else f'there is no {folder}'
  more = len(found) - _MOST_SHOWN
  if more > 0:
    found = [*found[:_MOST_SHOWN], f'{more:,} more']
  return f'{folder} holds {", ".join(found)}'


def similar(path: str) -> list[str]:
  """Returns local paths whose names resemble that of a path that is missing.

  Args:
    path: of a file or a folder, or a pattern of `find`.
  """
  folder, part = _first_missing(path)
  try:
    there = os.listdir(folder or '.')
  except OSError:
    return []
  folded = {name.casefold(): name for name in there if not is_hidden(name)}
  near = difflib.get_close_matches(part.casefold(), folded)
  return [os.path.join(folder, folded[name]) for name in near]


def instead(folder: str, patterns: Iterable[str]) -> str:
  """Says what there is in place of files that are missing; '' if nothing.

  Args:
    folder: where they should be.
    patterns: of the files, relative to the folder.
  """
  found: list[str] = []
  for pattern in patterns:
    found += similar(join(folder, pattern))
  # Of a folder and what is in it, the latter says more.
  shown = [
    path
    for path in dict.fromkeys(found)
    if not any(other.startswith(f'{path}/') for other in found)
  ]
  return f'; there is {", ".join(shown)}' if shown else ''


def _first_missing(path: str) -> tuple[str, str]:
  """Returns the first part of a path that is not there, and its folder."""
  folder = '/' if os.path.isabs(path) else ''
  for part in path.strip('/').split('/'):
    if not os.path.lexists(os.path.join(folder, part)):
      return folder, part
    folder = os.path.join(folder, part)
  return folder, ''


def find(folder: str, pattern: str) -> list[str]:
  """Finds the distinct files below `folder` that match, in sorted order.

  Args:
    folder: where to search; not a pattern.
    pattern: path, relative to `folder`, absolute or in a bucket; `*` matches
      within a name, `**/` zero or more folders, but nothing that is hidden. A
      trailing `/` denotes a folder.
  """
  if os.path.isabs(pattern) or is_bucket(pattern):
    folder = ''
  path = os.path.join(folder, pattern)
  if pattern.endswith('/'):
    return [path] if has_folder(path) else []
  if '*' not in pattern:
    return [path] if has_file(path) else []
  wanted = re.compile(
    re.escape(pattern).replace(r'\*\*/', '(?:.*/)?').replace(r'\*', '[^/]*')
  )
  start = len(os.path.join(folder, ''))
  root = os.path.join(folder, pattern[: pattern.index('*')].rpartition('/')[0])
  with explained(root):
    found = {x: y for x, y in _files_below(root) if wanted.fullmatch(x[start:])}
  # The last path of a file is kept: itself rather than a link to it.
  paths = sorted(found, key=lambda x: (os.path.islink(x), x), reverse=True)
  distinct = {found[path]: path for path in paths if has_file(path)}
  return sorted(distinct.values())


def _files_below(root: str) -> Iterator[tuple[str, str]]:
  """Yields the files below a folder, with the path without links of each.

  Each folder is visited only once despite links.
  """
  seen = set()
  for parent, folders, files in _walk(root):
    real = os.path.realpath(parent)
    if real in seen:
      folders.clear()
      continue
    seen.add(real)
    folders[:] = [name for name in folders if not is_hidden(name)]
    # Visit real folders before links to them.
    folders.sort(key=lambda name: (os.path.islink(f'{parent}/{name}'), name))
    for name in files:
      if is_hidden(name):
        continue
      path = os.path.join(parent, name)
      _check_is_text(path)
      is_link = os.path.islink(path)
      yield path, os.path.realpath(path) if is_link else f'{real}/{name}'


def _walk(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
  """Walks through folders; for local ones, without a call for each file."""
  if is_bucket(root):  # `walk` itself takes every error for no folder
    return _gfile().walk(root) if is_folder(root) else iter(())
  return os.walk(root, onerror=_raise_unless_missing, followlinks=True)


def _raise_unless_missing(error: OSError) -> None:
  if not isinstance(error, FileNotFoundError):
    raise error


def size(path: str) -> int:
  """Returns the bytes of a file."""
  return _size_and_times(path)[0]


def total_bytes(paths: Iterable[str]) -> int:
  """Returns the total size of the files."""
  return sum(map(size, paths))


def state(paths: Iterable[str]) -> str:
  """Returns a digest of sizes and times that changes when a file changes."""
  states = [(path, *_size_and_times(path)) for path in paths]
  return hashlib.sha256(repr(states).encode()).hexdigest()


def _size_and_times(path: str) -> Sequence[int]:
  with explained(path):
    if is_bucket(path):
      remote = _gfile().stat(path)
      return remote.length, remote.mtime_nsec
    local = os.stat(path)
  # The change time updates even if the modification time is preserved.
  return local.st_size, local.st_mtime_ns, local.st_ctime_ns


def state_below(*paths: str) -> list[tuple[str, int, int]] | None:
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


def is_gzip(path: str) -> bool:
  """Whether `path` is decompressed as it is read."""
  return path.endswith('.gz')


@contextlib.contextmanager
def reading(path: str) -> Iterator[Any]:
  """Yields a stream of a file's bytes, decompressed if it ends in `.gz`."""
  with explained(path), _open(path) as raw:
    refuse_lfs_pointer(path, raw.peek())
    yield gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw


def _open(path: str) -> io.BufferedReader:
  if is_bucket(path):
    return io.BufferedReader(_RemoteFile(path), _BUFFER_BYTES)
  has_file(path)  # raises on a pipe, which would block
  return open(path, 'rb')


class _RemoteFile(io.RawIOBase):
  """Wraps a file of tf.io.gfile, which drops carriage returns from lines."""

  def __init__(self, path: str) -> None:
    self._file = _gfile().GFile(path, 'rb')

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


def refuse_lfs_pointer(path: str, start: bytes) -> None:
  """Refuses a file whose first bytes only point to its content."""
  if start.startswith(_LFS_POINTER):
    raise Unreadable(
      f'{path} is a pointer of Git LFS; expected the file itself: run `git lfs '
      'pull` where it was cloned'
    )


def read(path: str, most: int = SETTINGS_BYTES) -> bytes:
  """Returns the bytes of a file, which is refused if it has more than `most`.

  A small `.gz` may hold more.
  """
  _check_size(path, size(path), most)
  with reading(path) as stream:
    data = stream.read(most + 1)
  _check_size(path, len(data), most)
  return data


def _check_size(path: str, found: int, most: int) -> None:
  if found > most:
    raise Unreadable(
      f'{path} has {found:,} bytes or more; a file of its kind has {most:,} at '
      'most. It is damaged, or not what its name says: copy it again, or give '
      'another.'
    )


def text(path: str, most: int = SETTINGS_BYTES) -> str | None:
  """Returns the text of a file in UTF-8, or None if there is none.

  A byte order mark, which some editors write first, is left out.
  """
  if not exists(path):
    return None
  with explained(path):
    return read(path, most).decode('utf-8-sig')


def make_folder(path: str) -> None:
  """Makes a folder, and those above it, unless it exists."""
  if is_bucket(path):
    with _as_os_errors():
      _gfile().makedirs(path)
  else:
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
  """Removes a file, or a folder with all that is in it."""
  is_tree = is_folder(path) and not os.path.islink(path)
  if is_bucket(path):
    with _as_os_errors():
      if is_tree:
        _gfile().rmtree(path)
      else:
        _gfile().remove(path)
  elif is_tree:
    shutil.rmtree(path)
  else:
    os.remove(path)


@contextlib.contextmanager
def writing_to_bucket(path: str, mode: str) -> Iterator[IO[Any]]:
  """Yields a stream that writes a file in a bucket."""
  with _as_os_errors(), _gfile().GFile(path, mode) as stream:
    yield stream


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
  """Raises TensorFlow's errors of writing as an OSError."""
  try:
    yield
  except Exception as error:
    if not _is_from_tensorflow(error):
      raise
    raise OSError(_cause(error)) from error


def _gfile() -> Any:
  """Imports TensorFlow, which otherwise prints what it finds."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  try:
    import tensorflow
  except ImportError as error:
    raise Unreadable(
      f'buckets are read by TensorFlow, which cannot be imported: {error}. '
      '`synth-mtf doctor` says what is wrong.'
    ) from error
  return tensorflow.io.gfile


def check_name(path: str) -> None:
  """Refuses a name that is empty, or that the shell should have replaced."""
  if not path.strip():
    raise Unreadable('the name is empty: give the path to write to')
  if path.startswith('~'):
    raise Unreadable(
      f'{path}: the shell replaces ~ only at the start of a word, so that a '
      f'folder named {path.split("/")[0]} would be made here. Write '
      f'{os.path.expanduser(path)}'
    )


def check_no_pattern(path: str) -> None:
  """Refuses the name of a folder that TensorFlow takes for a pattern."""
  if set(_PATTERNS) & set(path):
    raise Unreadable(
      f'{path}: TensorFlow takes the name for a pattern and would miss its own '
      "files, or find another folder's. Give a name without any of "
      f'{" ".join(_PATTERNS)}'
    )


def check_entries(folder: str, start: str = '') -> None:
  """Refuses a local folder with pipes and devices, which hang their reader.

  TensorFlow cannot list a folder with names that are not UTF-8: these, too.

  Args:
    folder: which need not exist.
    start: of the names to check.
  """
  try:
    found = os.listdir(folder)
  except OSError:  # a bucket, or it has disappeared
    return
  for name in found:
    if name.startswith(start):
      _check_entry(os.path.join(folder, name))


def check_written_entries(folder: str) -> None:
  """Refuses a local folder that is not safe to write to, with those below it.

  Links lead elsewhere, so they are refused as pipes and devices are. Only
  checkpoints may be links, since they are replaced rather than written to.
  """
  for parent, folders, files in os.walk(folder):
    for name in (*folders, *files):
      path = os.path.join(parent, name)
      _check_entry(path)
      if os.path.islink(path) and not _CHECKPOINT_FILE.fullmatch(name):
        raise Unreadable(
          f'{path} is a link to {os.readlink(path)}, which this run would '
          'write to: replace it with what it links to, or remove it'
        )


def _check_entry(path: str) -> None:
  _check_is_text(path)
  is_known = os.path.isfile(path) or os.path.isdir(path)
  if os.path.exists(path) and not is_known:
    raise Unreadable(f'{path} is a pipe or a device: remove it')


def _check_is_text(path: str) -> None:
  if path.encode(errors='replace').decode() != path:
    raise Unreadable(f'{path} is not a name in UTF-8: rename it')
