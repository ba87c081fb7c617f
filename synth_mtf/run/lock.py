"""One training run in a folder at a time.

Two runs would write checkpoints of the same names over each other. The lock is
the operating system's, on the file `training.lock` in the folder: it ends with
the process that holds it, however that dies. A bucket has no such lock, and
machines that share a drive see each other's only if the drive hands them on.
"""

import contextlib
import fcntl
import os
import socket

from synth_mtf.errors import UserError

FILE = 'training.lock'
_held: dict[str, int] = {}


def take(model_dir: str) -> None:
  """Takes a folder's lock, until `release_all` or the end of this process.

  Does nothing for a bucket, and on a drive without locks.

  Raises:
    UserError: another run trains there.
  """
  if '://' in model_dir:
    return
  path = os.path.join(os.path.realpath(model_dir), FILE)
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
      'two would overwrite the checkpoints of each other. Wait for it, stop '
      'it, or give another --model_dir. An evaluation may run beside it.'
    ) from None
  except OSError:  # this drive has no locks
    os.close(descriptor)
    return
  os.ftruncate(descriptor, 0)
  os.write(descriptor, f'process {os.getpid()} on {_host()}\n'.encode())
  _held[path] = descriptor


def release_all() -> None:
  """Gives back what this process holds."""
  while _held:
    _, descriptor = _held.popitem()
    os.close(descriptor)


def _host() -> str:
  with contextlib.suppress(OSError):
    return socket.gethostname()
  return 'this machine'
