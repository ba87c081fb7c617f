"""Where a run's output goes: a few lines to the user, the rest to a log.

TensorFlow also writes from C++, so the file descriptors are redirected.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Optional

from synth_mtf.run.console import Console

_console: Optional[Console] = None
_kept: list[bytes] = []  # what was written before there was a log


def console() -> Console:
  """Returns what reaches the user, also while stderr is a log."""
  return _console or Console()


def log_of(model_dir: str) -> str:
  """Returns the path of a run's log: in its folder, if that is writable."""
  if '://' in model_dir or not os.access(model_dir, os.W_OK):
    return os.path.join(tempfile.gettempdir(), f'synth-mtf-{os.getpid()}.log')
  return os.path.join(model_dir, 'log')


@contextlib.contextmanager
def to_log(path: str) -> Iterator[None]:
  """Appends to a file what this process writes, except on `console()`."""
  with open(path, 'ab', buffering=0) as log, _redirected(log.fileno()):
    log.write(b''.join(_kept))
    _kept.clear()
    yield


@contextlib.contextmanager
def kept() -> Iterator[None]:
  """Keeps what this process writes for its next log."""
  with tempfile.TemporaryFile(buffering=0) as file:
    try:
      with _redirected(file.fileno()):
        yield
    finally:
      file.seek(0)
      _kept.append(file.read())


@contextlib.contextmanager
def _redirected(log: int) -> Iterator[None]:
  """Redirects stdout and stderr to a file descriptor."""
  global _console
  _flush()
  saved = [os.dup(descriptor) for descriptor in (1, 2)]
  with os.fdopen(os.dup(2), 'w', buffering=1, errors='replace') as stream:
    _console = Console(stream)
    for descriptor in (1, 2):
      os.dup2(log, descriptor)
    try:
      yield
    finally:
      _flush()
      _console.leave()
      _console = None
      for descriptor, original in zip((1, 2), saved):
        os.dup2(original, descriptor)
        os.close(original)


def _flush() -> None:
  with contextlib.suppress(OSError):  # the disk of the log is full
    sys.stdout.flush()
    sys.stderr.flush()
