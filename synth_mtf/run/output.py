"""What a user sees of long work, and the log that gets everything else.

A terminal shows one line that is rewritten in place. A pipe or a file gets a
plain line every ten seconds, or as often as `SYNTH_MTF_PROGRESS_SECONDS` says.
TensorFlow also writes from C++, so file descriptors are redirected to the log.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Optional, TextIO

INTERVAL = 'SYNTH_MTF_PROGRESS_SECONDS'
_REWRITE_INTERVAL = 0.2  # seconds
_CLEAR = '\r\x1b[2K'  # back to the start of the line, which is erased


class Console:
  """Shows changing text, each after the title of the current task."""

  def __init__(self, stream: Optional[TextIO] = None) -> None:
    self._stream = stream or sys.stderr
    self._rewrites = self._stream.isatty() and (
      os.environ.get('TERM') not in ('dumb', 'unknown')
    )
    self._interval = (
      _REWRITE_INTERVAL
      if self._rewrites
      else float(os.environ.get(INTERVAL, 10))
    )
    self._title = ''
    self._is_open = False  # the current line will be rewritten
    self._last_shown = 0.0

  def line(self, text: str = '') -> None:
    """Writes a permanent line."""
    clear = _CLEAR if self._rewrites else ''
    self._is_open = False
    print(f'{clear}{text}', file=self._stream, flush=True)

  def start(self, title: str) -> None:
    """Begins a task; its title precedes each of its texts."""
    self._title = title
    self._last_shown = -self._interval
    self.update('...')

  def update(self, text: str) -> None:
    """Shows how far the task has come, unless the last update is recent."""
    if time.monotonic() - self._last_shown < self._interval:
      return
    self._last_shown = time.monotonic()
    text = f'{self._title}  {text}'
    if not self._rewrites:
      self.line(text)
      return
    try:  # stdout, of which `shutil` asks, may be a log
      columns = os.get_terminal_size(self._stream.fileno()).columns
    except OSError:
      columns = shutil.get_terminal_size().columns
    if len(text) >= columns:  # some terminals wrap a full line
      text = f'{text[: columns - 2]}\u2026'
    self._is_open = True
    print(f'{_CLEAR}{text}', end='', file=self._stream, flush=True)

  def finish(self, text: str) -> None:
    """Ends the task with a permanent line."""
    self.line(f'{self._title}  {text}')

  @contextlib.contextmanager
  def task(self, title: str) -> Iterator[None]:
    """Shows a task that takes as long as the block."""
    begun = time.monotonic()
    self.start(title)
    try:
      yield
    except BaseException:
      self.finish('failed')
      raise
    self.finish(duration(time.monotonic() - begun))

  def leave(self) -> None:
    """Ends the current line, so that other output does not run into it."""
    if self._is_open:
      self._is_open = False
      print(file=self._stream, flush=True)


def duration(seconds: float) -> str:
  """Formats a time: '42 s', '3 min 05 s', '2 h 10 min'."""
  seconds = round(seconds)
  if seconds < 60:
    return f'{seconds} s'
  if seconds < 3600:
    return f'{seconds // 60} min {seconds % 60:02d} s'
  return f'{seconds // 3600} h {seconds % 3600 // 60:02d} min'


_beside_log: Optional[Console] = None
_kept: list[bytes] = []  # what was written before there was a log


def console() -> Console:
  """Returns what reaches the user, also while stderr is a log."""
  return _beside_log or Console()


def console_beside_log() -> Optional[Console]:
  """Returns the user's console if all other output goes to a log."""
  return _beside_log


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
  global _beside_log
  _flush()
  saved = [os.dup(descriptor) for descriptor in (1, 2)]
  with os.fdopen(os.dup(2), 'w', buffering=1, errors='replace') as stream:
    _beside_log = Console(stream)
    for descriptor in (1, 2):
      os.dup2(log, descriptor)
    try:
      yield
    finally:
      _flush()
      _beside_log.leave()
      _beside_log = None
      for descriptor, original in zip((1, 2), saved):
        os.dup2(original, descriptor)
        os.close(original)


def _flush() -> None:
  with contextlib.suppress(OSError):  # the disk of the log is full
    sys.stdout.flush()
    sys.stderr.flush()
