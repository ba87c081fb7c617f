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
import re
import shutil
from collections.abc import Callable, Iterable, Iterator

import tensorflow.compat.v1 as tf
from absl import logging

from synth_mtf.checkpoints import names
from synth_mtf.checkpoints.folder import Folder, is_complete
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig
from synth_mtf.storage import atomic, filesystem

LOCK = 'training.lock'
_SHOWN = 3  # of many names
_MISSING = re.compile(r'Key (\S+) not found in checkpoint')


@contextlib.contextmanager
def opened(model_dir: str) -> Iterator[None]:
  """Checks a folder, and creates it if it is missing.

  If the run is refused, removes the folder again, provided that this run
  created it and it holds only the log and T5's `commands`.
  """
  is_bucket = filesystem.is_bucket(model_dir)
  is_new = not is_bucket and not os.path.exists(model_dir)
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
  if {'log', 'commands'}.issuperset(os.listdir(model_dir)):
    shutil.rmtree(model_dir, ignore_errors=True)


def check(model_dir: str) -> None:
  """Checks the name of a model folder, and creates the folder if missing."""
  with filesystem.named_by('--model_dir'):
    _check(model_dir)


def _check(model_dir: str) -> None:
  filesystem.check_name(model_dir)
  filesystem.check_no_pattern(model_dir)
  if not os.path.isdir(model_dir):
    atomic.check_writable(model_dir)
    filesystem.make_folder(model_dir)
  filesystem.check_written_entries(model_dir)
  for name in ('log', LOCK):
    _check_kind(os.path.join(model_dir, name), 'file', os.path.isfile)
  _check_kind(os.path.join(model_dir, 'commands'), 'folder', os.path.isdir)


def _check_kind(path: str, kind: str, is_it: Callable[[str], bool]) -> None:
  """Refuses what a run cannot write to, such as a folder named `log`."""
  if os.path.lexists(path) and not is_it(path):
    raise filesystem.Unreadable(
      f'{path} is not a {kind}, as which a run writes it: move it away'
    )


@contextlib.contextmanager
def locked(model_dir: str) -> Iterator[bool]:
  """Locks a folder for training; the end of the process also releases it.

  If the run is refused, the file of the lock goes with it, unless it was there
  before.

  Yields:
    Whether it is locked, which a bucket and some drives do not support.
  """
  if filesystem.is_bucket(model_dir):
    yield False
    return
  filesystem.check_written_entries(model_dir)
  path = os.path.join(model_dir, LOCK)
  is_new = not os.path.exists(path)
  descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
  is_locked = False
  try:
    is_locked = _lock(descriptor, path)
    yield is_locked
  except (UserError, KeyboardInterrupt):
    if is_new and is_locked and os.path.exists(path):
      os.remove(path)
    raise
  finally:
    os.close(descriptor)


def _lock(descriptor: int, path: str) -> bool:
  """Locks an open file and writes who holds it; returns whether it is locked.

  Raises a UserError if somebody else holds it.
  """
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    holder = os.read(descriptor, 200).decode('utf-8', 'replace').strip()
    raise UserError(
      f'another run is training in {os.path.dirname(path)} '
      f"({holder or 'unknown'}): the two would overwrite each other's "
      'checkpoints. Wait for it, stop it, or give another --model_dir. An '
      'evaluation may run at the same time.'
    ) from None
  except OSError:  # the drive does not support locks
    return False
  with atomic.errors_named(path):
    os.ftruncate(descriptor, 0)
    holder = f'process {os.getpid()} on {platform.node()}\n'
    os.write(descriptor, holder.encode())
  return True


def clear(folder: Folder) -> None:
  """Removes what a killed run left of a save; the folder must be locked."""
  removed = folder.clear()
  if removed:
    logging.warning(
      'removed what an interrupted save left: %s', ', '.join(removed)
    )


def require_unlocked(folder: str) -> None:
  """Raises a UserError if a run is training in a folder."""
  path = os.path.join(folder, LOCK)
  if filesystem.is_bucket(folder) or not os.path.isfile(path):
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


def explain(error: BaseException, model_dir: str) -> str | None:
  """Explains a run's error if its folder is gone or a checkpoint is damaged."""
  if not tf.io.gfile.isdir(model_dir):
    return f'{model_dir} was removed or renamed while the run wrote to it.'
  # A truncated file raises an IndexError.
  if not isinstance(error, (tf.errors.OpError, IndexError, RuntimeError)):
    return None
  if _MISSING.search(str(error)):
    return _missing_slots(error, Folder(model_dir))
  start = RunConfig().init_checkpoint
  if start and not is_complete(start):
    return (
      f'utils.run.init_checkpoint = {start} is damaged (truncated or altered): '
      'use another checkpoint, or an intact copy.'
    )
  return Folder(model_dir).damage()


def _missing_slots(error: BaseException, folder: Folder) -> str | None:
  """Explains that a checkpoint lacks the slots of the run's optimizer."""
  expected = _MISSING.findall(str(error))
  graph = getattr(getattr(error, 'op', None), 'graph', None)
  if graph is not None:
    variables = graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    expected += [variable.op.name for variable in variables]
  path = tf.train.latest_checkpoint(folder.path)
  stored = {name for name, _ in tf.train.list_variables(path)} if path else {}
  missing = sorted({*expected} - {*stored})
  if not missing or not all(map(names.slot_owner, missing)):
    return None
  ours = {names.optimizer_of(name) for name in missing}
  theirs = {names.optimizer_of(n) for n in stored if names.slot_owner(n)}
  more = f' and {len(missing) - _SHOWN} more' if len(missing) > _SHOWN else ''
  return (
    f'{path} lacks the slot variables of {_listed(ours)} '
    f'(utils.run.optimizer): {", ".join(missing[:_SHOWN])}{more}. It has those '
    f'of {_listed(theirs) or "no optimizer"}: continue with the optimizer and '
    'the settings that trained it. For another one, give a new --model_dir, '
    'which takes its weights: '
    f'--gin_param="utils.run.init_checkpoint = \'{path}\'"'
  )


def _listed(optimizers: Iterable[str]) -> str:
  return ', '.join(sorted(optimizers))
