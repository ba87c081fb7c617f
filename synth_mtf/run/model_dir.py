"""Checks and locks the folder of a run.

Two training runs in a folder would overwrite each other's checkpoints. A lock
on the file `training.lock` prevents this; the operating system releases it when
the process ends, even if it is killed. Buckets have no such lock, and machines
that share a drive see each other's locks only if the drive propagates them.
"""

import contextlib
import fcntl
import os
import platform
import shutil
from collections.abc import Callable, Iterator

import tensorflow.compat.v1 as tf
from absl import logging

from synth_mtf import atomic, paths
from synth_mtf.checkpoints.folder import Folder, is_complete
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig

LOCK = 'training.lock'
_PATTERNS = '*?[\\'
_held: dict[str, int] = {}  # file descriptors, by path


@contextlib.contextmanager
def opened(model_dir: str) -> Iterator[None]:
  """Checks a folder, and creates it if it is missing.

  If the run is refused, removes the folder again, provided that this run
  created it and it holds only the log, T5's `commands` and this run's lock.
  """
  is_new = '://' not in model_dir and not os.path.exists(model_dir)
  check(model_dir)
  try:
    yield
  except (UserError, KeyboardInterrupt):
    if is_new:
      _remove_if_unused(model_dir)
    raise


def _remove_if_unused(model_dir: str) -> None:
  if not os.path.isdir(model_dir):
    return
  from_the_start = {'log', 'commands'}
  if _lock_path(model_dir) in _held:
    from_the_start.add(LOCK)
  if from_the_start.issuperset(os.listdir(model_dir)):
    shutil.rmtree(model_dir, ignore_errors=True)


def check(model_dir: str) -> None:
  """Checks the name of a model folder, and creates the folder if missing."""
  if not model_dir.strip():
    raise UserError('--model_dir is empty: give the folder of the checkpoints.')
  if set(_PATTERNS) & set(model_dir):
    raise UserError(
      f'--model_dir {model_dir}: TensorFlow takes the name for a pattern and '
      "would miss its own checkpoints, or find another folder's. Give a name "
      f'without any of {" ".join(_PATTERNS)}'
    )
  if model_dir.startswith('~'):
    raise UserError(
      f'--model_dir={model_dir}: the shell replaces ~ only at the start of a '
      f'word, so that a folder named {model_dir.split("/")[0]} would be made '
      f'here. Write {os.path.expanduser(model_dir)}.'
    )
  if not os.path.isdir(model_dir):
    atomic.check_writable(model_dir)
    tf.io.gfile.makedirs(model_dir)
  paths.check_written_entries(model_dir)
  for name in ('log', LOCK):
    _check_kind(os.path.join(model_dir, name), 'file', os.path.isfile)
  _check_kind(os.path.join(model_dir, 'commands'), 'folder', os.path.isdir)


def _check_kind(path: str, kind: str, is_it: Callable[[str], bool]) -> None:
  """Refuses what a run cannot write to, such as a folder named `log`."""
  if os.path.lexists(path) and not is_it(path):
    raise UserError(f'{path} is no {kind}, which a run writes there: move it')


def lock_to_train(model_dir: str) -> None:
  """Locks a folder, and removes what a killed run left of a save.

  Without a lock, somebody else may be saving, and nothing is removed.
  """
  if not lock(model_dir):
    return
  removed = Folder(model_dir).clear()
  if removed:
    logging.warning(
      'removed what an interrupted save left: %s', ', '.join(removed)
    )


def lock(model_dir: str) -> bool:
  """Locks a folder until `unlock_all` or the end of this process.

  Returns whether this call has locked it: it does nothing for a bucket, on a
  drive without locks, or if this process holds the lock.
  """
  path = _lock_path(model_dir)
  if '://' in model_dir or path in _held:
    return False
  paths.check_written_entries(model_dir)
  descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    holder = os.read(descriptor, 200).decode('utf-8', 'replace').strip()
    os.close(descriptor)
    raise UserError(
      f'another run is training in {model_dir} ({holder or "unknown"}): the '
      "two would overwrite each other's checkpoints. Wait for it, stop it, or "
      'give another --model_dir. An evaluation may run at the same time.'
    ) from None
  except OSError:  # the drive does not support locks
    os.close(descriptor)
    return False
  _held[path] = descriptor
  with atomic.errors_named(path):
    os.ftruncate(descriptor, 0)
    holder = f'process {os.getpid()} on {platform.node()}\n'
    os.write(descriptor, holder.encode())
  return True


def require_unlocked(folder: str) -> None:
  """Raises a UserError if a run is training in a folder."""
  path = os.path.join(folder, LOCK)
  if '://' in folder or not os.path.isfile(path):
    return
  with open(path, encoding='utf-8', errors='replace') as stream:
    try:
      fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      raise UserError(
        f'a run is training in {folder} ({stream.read(200).strip()}): wait for '
        'it, or give one of its checkpoints, such as '
        f'{os.path.join(folder, "model.ckpt-1000")}'
      ) from None
    except OSError:  # the drive does not support locks
      return


def unlock_all() -> None:
  """Releases the locks of this process."""
  while _held:
    _, descriptor = _held.popitem()
    os.close(descriptor)


def explain(error: BaseException, model_dir: str) -> str | None:
  """Explains a run's error if its folder is gone or a checkpoint is damaged."""
  if not tf.io.gfile.isdir(model_dir):
    return f'{model_dir} was removed or renamed while the run wrote to it.'
  # A truncated file raises an IndexError.
  if not isinstance(error, (tf.errors.OpError, IndexError, RuntimeError)):
    return None
  start = RunConfig().init_checkpoint
  if start and not is_complete(start):
    return (
      f'utils.run.init_checkpoint = {start} is damaged (truncated or altered): '
      'use another checkpoint, or an intact copy.'
    )
  return Folder(model_dir).damage()


def _lock_path(model_dir: str) -> str:
  return os.path.join(os.path.realpath(model_dir), LOCK)
