"""Writes files whole or not at all, even if the process is killed."""

import contextlib
import fcntl
import glob
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem

Path = str | os.PathLike[str]


def write(path: Path, text: str) -> None:
  """Writes a text file in UTF-8, local or in a bucket (`scheme://...`)."""
  with writing(path) as stream:
    stream.write(text)


@contextlib.contextmanager
def writing(path: Path, mode: str = 'w') -> Iterator[IO[Any]]:
  """Yields a stream that writes a file atomically; see `write`."""
  if filesystem.is_bucket(str(path)):
    # A bucket shows an object only once it is complete.
    with filesystem.writing_to_bucket(str(path), mode) as stream:
      yield stream
    return
  encoding = None if 'b' in mode else 'utf-8'
  with (
    replacing(path) as partial,
    errors_named(path),
    open(partial, mode, encoding=encoding) as stream,
  ):
    yield stream


@contextlib.contextmanager
def errors_named(path: Path) -> Iterator[None]:
  """Adds the file to an error of writing, such as that the disk is full."""
  try:
    yield
  except OSError as error:
    if error.errno is None or error.filename:
      raise
    raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[pathlib.Path]:
  """Yields a path to write to; the file then replaces `path`."""
  whole = pathlib.Path(path)
  with folder_beside(whole) as folder:
    partial = folder / whole.name
    yield partial
    os.replace(partial, whole)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[pathlib.Path]:
  """Yields a folder to fill, which then becomes `path`, a new local folder."""
  check_new_folder(path)
  whole = pathlib.Path(path)
  try:
    whole.parent.mkdir(parents=True, exist_ok=True)
    with folder_beside(whole) as folder:
      partial = folder / whole.name
      partial.mkdir()
      yield partial
      _allow_reading(partial)
      os.rename(partial, whole)
  except OSError as error:
    raise UserError(f'{path} cannot be written: {error}') from error


def check_new_folder(path: str) -> None:
  """Refuses a folder that exists, is in a bucket, or cannot be made."""
  if filesystem.is_bucket(path) or os.path.lexists(path):
    raise UserError(
      f'{path} exists already, or is a bucket: give a new local folder'
    )
  check_writable(path, 'the new folder')


@contextlib.contextmanager
def folder_beside(whole: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a new folder `.NAME.<process>.partial`, which is removed at the end.

  A killed process leaves its folder. The next one that writes the same name
  removes it: the folder of a running process is locked.
  """
  for left in whole.parent.glob(f'.{glob.escape(whole.name)}.*.partial'):
    descriptor = _locked(left)
    if descriptor is not None:
      shutil.rmtree(left, ignore_errors=True)
      os.close(descriptor)
  folder = whole.with_name(f'.{whole.name}.{os.getpid()}.partial')
  descriptor = None
  try:
    folder.mkdir()
    descriptor = _locked(folder)
    yield folder
  finally:
    shutil.rmtree(folder, ignore_errors=True)
    if descriptor is not None:
      os.close(descriptor)


def _locked(folder: pathlib.Path) -> int | None:
  """Locks a folder; returns None if it is locked, gone, a link, or cannot be.

  The lock ends when the descriptor is closed, at the latest with the process.
  """
  flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
  descriptor = None
  try:
    descriptor = os.open(folder, flags)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError:  # some drives have no locks, or none for folders
    if descriptor is not None:
      os.close(descriptor)
    return None
  return descriptor


def _allow_reading(folder: pathlib.Path) -> None:
  """Gives files the mode that the umask gives new ones; some are 0600."""
  mode = folder.stat().st_mode & 0o666
  for path in folder.iterdir():
    if path.is_file():
      path.chmod(mode)


@contextlib.contextmanager
def one_at_a_time(folder: str, name: str) -> Iterator[None]:
  """Waits until no other process is inside, for the same folder and name.

  The operating system's lock on a file of this name, which stays. It ends with
  the process. Buckets have no locks, and neither have some drives.
  """
  if filesystem.is_bucket(folder):
    yield
    return
  os.makedirs(folder, exist_ok=True)
  flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
  descriptor = os.open(os.path.join(folder, name), flags, 0o666)
  try:
    with contextlib.suppress(OSError):  # the drive has no locks
      fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
  finally:
    os.close(descriptor)


@contextlib.contextmanager
def sole_writer(folder: str, command: str) -> Iterator[None]:
  """Refuses a folder that another process has opened by this function.

  The operating system's lock on the folder, which ends with the process.
  Buckets have no locks, and neither have some drives.

  Args:
    folder: exists.
    command: what writes to the folder, in words.

  Raises:
    UserError: another process writes to the folder.
  """
  if filesystem.is_bucket(folder):
    yield
    return
  descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    os.close(descriptor)
    raise UserError(
      f'another {command} is writing to {folder}: wait for it, or stop it, and '
      'give the same command again.'
    ) from None
  except OSError:  # the drive has no locks
    pass
  try:
    yield
  finally:
    os.close(descriptor)


def check_writable(folder: str, setting: str = '--model_dir') -> None:
  """Checks that a folder, which may not exist yet, is writable."""
  with filesystem.named_by(setting):
    filesystem.check_name(folder)
    if filesystem.is_bucket(folder):
      _check_bucket(folder)
    else:
      _check_local(folder)


def _check_local(folder: str) -> None:
  existing = _nearest_existing(folder)
  fault = _why_not_writable(existing)
  if fault:
    raise filesystem.Unreadable(
      f'{folder} cannot be written: {existing} {fault}. Give a folder that you '
      'may write to.'
    )


def _check_bucket(folder: str) -> None:
  """Writes a file to a bucket, and removes it again."""
  path = f'{folder.rstrip("/")}/.synth_mtf_{os.getpid()}'
  try:
    filesystem.make_folder(folder)
    write(path, '')
    filesystem.remove(path)
  except OSError as error:
    raise filesystem.Unreadable(
      f'{folder} cannot be written: {error}. Check its name, the network and '
      'your permission to write there (for gs://, `gcloud auth '
      'application-default login`).'
    ) from error


def check_replaceable(path: str, mark: str) -> None:
  """Refuses a path that cannot be written, or a file without our mark there."""
  with filesystem.named_by('--out'):
    _check_replaceable(path, mark)


def _check_replaceable(path: str, mark: str) -> None:
  folder = os.path.dirname(path) or '.'
  is_readable = not os.path.exists(path) or os.access(path, os.R_OK)
  is_file = not filesystem.is_folder(path) and filesystem.is_folder(folder)
  if not is_file or not is_readable:
    raise filesystem.Unreadable(
      f'{path}: expected a file that can be read, in a folder that exists'
    )
  check_writable(folder, '--out')
  if not filesystem.exists(path):
    return
  with filesystem.reading(path) as stream:
    is_ours = mark.encode() in stream.read(1000)
  if not is_ours:
    raise filesystem.Unreadable(
      f'{path} exists and is not a file of this command; it was not '
      'changed. Give another name, or move it away.'
    )


def _nearest_existing(folder: str) -> pathlib.Path:
  """Returns a folder or, if it does not exist, the nearest one above it."""
  path = pathlib.Path(os.path.abspath(folder))
  while not os.path.lexists(path):
    path = path.parent
  return path


def _why_not_writable(folder: pathlib.Path) -> str:
  """Returns what prevents new files in a folder, or ''."""
  if not os.path.isdir(folder):
    return 'is a broken link' if os.path.islink(folder) else 'is not a folder'
  try:
    tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    return f'does not accept files ({error.strerror})'
  return ''
