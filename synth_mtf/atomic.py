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
  else:
    with (
      replacing(path) as partial,
      open(partial, mode, encoding=None if 'b' in mode else 'utf-8') as out,
    ):
      yield out


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[pathlib.Path]:
  """Yields a path to write to; the file then replaces `path`.

  Each process uses its own temporary name, so leftover files do no harm.
  """
  whole = pathlib.Path(path)
  partial = whole.with_name(f'.{whole.name}.{os.getpid()}.partial')
  partial.unlink(missing_ok=True)  # never write through a link
  try:
    yield partial
    os.replace(partial, whole)
  finally:
    partial.unlink(missing_ok=True)


def check_writable(folder: str, setting: str = '--model_dir') -> None:
  """Checks that a folder, which may not exist yet, is writable."""
  if '://' in folder:
    return
  if folder.startswith('~'):
    raise UserError(
      f'{setting} {folder}: the shell does not expand a ~ after `=`; give the '
      'whole path'
    )
  whole = pathlib.Path(os.path.abspath(folder))
  path = next(p for p in (whole, *whole.parents) if os.path.lexists(p))
  if not os.path.isdir(path):
    fault = 'is a broken link' if os.path.islink(path) else 'is not a folder'
  else:
    try:
      tempfile.TemporaryFile(dir=path).close()
      return
    except OSError as error:
      fault = f'takes no file ({error.strerror})'
  raise UserError(
    f'{setting} {folder} cannot be written: {path} {fault}. Give a folder that '
    'you may write to.'
  )


def check_replaceable(path: str, mark: str) -> None:
  """Refuses a path that cannot be written, or a file without our mark there."""
  import tensorflow as tf

  folder = os.path.dirname(path) or '.'
  is_readable = not os.path.exists(path) or os.access(path, os.R_OK)
  if (
    tf.io.gfile.isdir(path) or not tf.io.gfile.isdir(folder) or not is_readable
  ):
    raise UserError(
      f'--out {path}: expected a file that can be read, in a folder that exists'
    )
  check_writable(folder, '--out')
  if tf.io.gfile.exists(path):
    with tf.io.gfile.GFile(path, 'rb') as stream:
      if mark.encode() not in stream.read(1000):
        raise UserError(
          f'--out {path} exists and is not a file of this command; it was not '
          'changed. Give another name, or move it away.'
        )


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[pathlib.Path]:
  """Yields a folder to fill, which then becomes `path`, a new local folder."""
  whole = pathlib.Path(path)
  if '://' in path or os.path.lexists(path):
    raise UserError(
      f'{path} exists already, or is a bucket: give a new local folder'
    )
  partial = whole.with_name(f'.{whole.name}.{os.getpid()}.partial')
  try:
    partial.mkdir(parents=True)
    yield partial
    os.rename(partial, whole)
  except OSError as error:
    raise UserError(f'{path} cannot be written: {error}') from error
  finally:
    shutil.rmtree(partial, ignore_errors=True)
