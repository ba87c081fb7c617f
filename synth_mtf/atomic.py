"""Writes files whole or not at all, even if the process is killed."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from synth_mtf.errors import UserError

Path = str | os.PathLike[str]


def write(path: Path, text: str) -> None:
  """Writes a text file in UTF-8, local or in a bucket (`scheme://...`)."""
  with writing(path) as stream:
    stream.write(text)


@contextlib.contextmanager
def writing(path: Path, mode: str = 'w') -> Iterator[IO[Any]]:
  """Yields a stream that writes a file atomically; see `write`."""
  if '://' in str(path):
    import tensorflow as tf

    # A bucket shows an object only once it is complete.
    with tf.io.gfile.GFile(str(path), mode) as stream:
      yield stream
    return
  encoding = None if 'b' in mode else 'utf-8'
  with (
    replacing(path) as partial,
    open(partial, mode, encoding=encoding) as stream,
  ):
    yield stream


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[pathlib.Path]:
  """Yields a path to write to; the file then replaces `path`.

  Each process uses its own temporary name, so leftover files do no harm.
  """
  whole = pathlib.Path(path)
  partial = _partial(whole)
  partial.unlink(missing_ok=True)  # never write through a link
  try:
    yield partial
    os.replace(partial, whole)
  finally:
    partial.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[pathlib.Path]:
  """Yields a folder to fill, which then becomes `path`, a new local folder."""
  if '://' in path or os.path.lexists(path):
    raise UserError(
      f'{path} exists already, or is a bucket: give a new local folder'
    )
  whole = pathlib.Path(path)
  partial = _partial(whole)
  try:
    partial.mkdir(parents=True)
    yield partial
    os.rename(partial, whole)
  except OSError as error:
    raise UserError(f'{path} cannot be written: {error}') from error
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def check_writable(folder: str, setting: str = '--model_dir') -> None:
  """Checks that a folder, which may not exist yet, is writable."""
  if '://' in folder:
    _check_bucket(folder, setting)
    return
  if folder.startswith('~'):
    raise UserError(
      f'{setting} {folder}: the shell does not expand a ~ after `=`; give the '
      'whole path'
    )
  existing = _nearest_existing(folder)
  fault = _why_not_writable(existing)
  if fault:
    raise UserError(
      f'{setting} {folder} cannot be written: {existing} {fault}. Give a '
      'folder that you may write to.'
    )


def _check_bucket(folder: str, setting: str) -> None:
  """Writes a file to a bucket, and removes it again."""
  import tensorflow as tf

  path = f'{folder.rstrip("/")}/.synth_mtf_{os.getpid()}'
  try:
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(path, 'w') as stream:
      stream.write('')
    tf.io.gfile.remove(path)
  except tf.errors.OpError as error:
    raise UserError(
      f'{setting} {folder} cannot be written: {error.message.strip()}. Check '
      'its name, the network and your permission to write there (for gs://, '
      '`gcloud auth application-default login`).'
    ) from error


def check_replaceable(path: str, mark: str) -> None:
  """Refuses a path that cannot be written, or a file without our mark there."""
  import tensorflow as tf

  folder = os.path.dirname(path) or '.'
  is_readable = not os.path.exists(path) or os.access(path, os.R_OK)
  is_file = not tf.io.gfile.isdir(path) and tf.io.gfile.isdir(folder)
  if not is_file or not is_readable:
    raise UserError(
      f'--out {path}: expected a file that can be read, in a folder that exists'
    )
  check_writable(folder, '--out')
  if not tf.io.gfile.exists(path):
    return
  with tf.io.gfile.GFile(path, 'rb') as stream:
    is_ours = mark.encode() in stream.read(1000)
  if not is_ours:
    raise UserError(
      f'--out {path} exists and is not a file of this command; it was not '
      'changed. Give another name, or move it away.'
    )


def _partial(path: pathlib.Path) -> pathlib.Path:
  """Returns this process's temporary name for a path."""
  return path.with_name(f'.{path.name}.{os.getpid()}.partial')


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
