"""The folder of a run: its name, who may write to it, and its lock.

Two training runs in a folder would overwrite each other's checkpoints. The lock
is the operating system's, on the file `training.lock`: it ends with the process
that holds it, however that dies. A bucket has no such lock, and machines that
share a drive see each other's only if the drive passes them on.
"""

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Callable
from typing import Optional

import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError

LOCK = 'training.lock'
_PATTERNS = '*?[\\'
_held: dict[str, int] = {}  # file descriptors, by path


def check_name(model_dir: str) -> None:
  """Checks the name of a model folder.

  Raises:
    UserError: TensorFlow would take it for another name.
  """
  if not model_dir:
    raise UserError('--model_dir is empty: give the folder of the checkpoints.')
  if model_dir != model_dir.strip():
    raise UserError(
      f'--model_dir {model_dir!r} begins or ends with white space. Give a '
      'name without.'
    )
  found = ' '.join(sorted(set(_PATTERNS).intersection(model_dir)))
  if found:
    raise UserError(
      f'--model_dir {model_dir} contains {found} : TensorFlow takes the name '
      'for a pattern and would miss its own checkpoints, or find another folder'
      "'s. Give a name without * ? [ and \\."
    )
  if model_dir.startswith('~'):
    raise UserError(
      f'--model_dir={model_dir}: the shell replaces ~ only at the start of a '
      f'word, so that a folder named {model_dir.split("/")[0]} would be made '
      f'here. Write {os.path.expanduser(model_dir)}.'
    )


def check_folder(model_dir: str) -> None:
  """Makes a model folder if it does not exist.

  Raises:
    UserError: it is a file or a broken link, or cannot be made.
  """
  for path in _and_parents(model_dir):
    if os.path.islink(path) and not os.path.exists(path):
      raise UserError(
        f'--model_dir {model_dir}: the link {path} leads to '
        f'{os.readlink(path)}, which does not exist. Make that folder, or give '
        'another one.'
      )
    if os.path.exists(path) and not os.path.isdir(path):
      raise UserError(
        f'--model_dir {model_dir} cannot be made: {path} is a file. Give a '
        'folder.'
      )
  try:
    tf.io.gfile.makedirs(model_dir)
  except tf.errors.OpError as error:
    raise UserError(
      f'--model_dir {model_dir} cannot be made: {error.message}. Give a folder '
      'that you may write to.'
    ) from error


def check_writable(model_dir: str) -> None:
  """Checks that files can be made in a model folder.

  Raises:
    UserError: they cannot.
  """
  if '://' in model_dir:
    return
  try:
    tempfile.TemporaryFile(dir=model_dir).close()
  except OSError as error:
    raise UserError(
      f'--model_dir {model_dir} cannot be written to: {error.strerror}. Give a '
      'folder that you may write to.'
    ) from error


def is_writable(model_dir: str) -> bool:
  """Whether files can be made in a model folder."""
  try:
    check_writable(model_dir)
  except UserError:
    return False
  return True


def lock(model_dir: str) -> None:
  """Locks a folder for training, until `unlock_all` or the end of this process.

  Does nothing for a bucket, and on a drive without locks.

  Raises:
    UserError: another run trains there.
  """
  if '://' in model_dir:
    return
  path = os.path.join(os.path.realpath(model_dir), LOCK)
  if path in _held:
    return
  descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    holder = os.read(descriptor, 200).decode('utf-8', 'replace').strip()
    os.close(descriptor)
    raise UserError(
      f'another run is training in {model_dir} ({holder or "unknown"}): the '
      "two would overwrite each other's checkpoints. Wait for it, stop it, or "
      'give another --model_dir. An evaluation may run beside it.'
    ) from None
  except OSError:  # this drive has no locks
    os.close(descriptor)
    return
  os.ftruncate(descriptor, 0)
  os.write(descriptor, f'process {os.getpid()} on {_host()}\n'.encode())
  _held[path] = descriptor


def unlock_all() -> None:
  """Releases the locks of this process."""
  while _held:
    _, descriptor = _held.popitem()
    os.close(descriptor)


def _host() -> str:
  with contextlib.suppress(OSError):
    return socket.gethostname()
  return 'this machine'


def explainer(model_dir: str) -> Callable[[BaseException], Optional[str]]:
  """Returns what explains errors where a model folder is not writable."""

  def explain(error: BaseException) -> Optional[str]:
    if isinstance(error, (tf.errors.OpError, OSError)):
      try:
        check_writable(model_dir)
      except UserError as fault:
        return str(fault)
    return None

  return explain


def _and_parents(path: str) -> list[str]:
  """A local path and the folders above it, the topmost first."""
  if '://' in path:
    return []
  parents = [path]
  while os.path.dirname(parents[0]) not in ('', parents[0]):
    parents.insert(0, os.path.dirname(parents[0]))
  return parents
