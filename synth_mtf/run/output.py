"""Shows progress on the console, and sends all other output to a log.

A terminal shows one line that is rewritten in place. A pipe or a file gets a
plain line every `SYNTH_MTF_PROGRESS_SECONDS` seconds (default: 10). A text that
ends in '...' is followed by the seconds for which it has been true.
TensorFlow also writes from C++, so file descriptors are redirected to the log.
"""

import bisect
import contextlib
import io
import itertools
import math
import os
import shutil
import sys
import tempfile
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from synth_mtf.errors import UserError
from synth_mtf.escaping import Escaped, escaped

INTERVAL = 'SYNTH_MTF_PROGRESS_SECONDS'
_CLEAR = '\r\x1b[2K'  # returns to the start of the line and erases it


class Printable:
  """A text stream that escapes what is not to be written to it as it is.

  That is control characters, which move terminals, and letters that the
  encoding of the stream does not have.
  """

  def __init__(self, stream: TextIO) -> None:
    self._stream = stream

  def write(self, text: str) -> int:
    encoding = getattr(self._stream, 'encoding', None) or 'utf-8'
    written = escaped(text).encode(encoding, 'backslashreplace')
    return self._stream.write(written.decode(encoding))

  def finish(self) -> None:
    """Writes what is in a buffer, and drops what cannot be written.

    Python would try it again at its end, and change the exit status.
    """
    try:
      self._stream.flush()
    except OSError:
      with contextlib.suppress(OSError), open(os.devnull, 'wb') as nothing:
        os.dup2(nothing.fileno(), self._stream.fileno())

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)


class CannotPrint(Exception):
  """Standard output cannot be written.

  It is not an OSError, which argparse and others ignore.

  Attributes:
    is_closed: whether it is a pipe whose reader has ended, as `head` does.
  """

  def __init__(self, error: OSError) -> None:
    super().__init__(f'standard output cannot be written: {error.strerror}')
    self.is_closed = isinstance(error, BrokenPipeError)


class Results(Printable):
  """Standard output; a `CannotPrint` if it cannot be written."""

  def write(self, text: str) -> int:
    with _raising_cannot_print():
      return super().write(text)

  def flush(self) -> None:
    """Writes what is still in a buffer."""
    with _raising_cannot_print():
      self._stream.flush()


@contextlib.contextmanager
def _raising_cannot_print() -> Iterator[None]:
  try:
    yield
  except OSError as error:
    raise CannotPrint(error) from error


def open_closed_streams() -> None:
  """Opens standard streams that are closed, as by `>&-`, so that all can write.

  What is written to them is lost, as the user asked for.
  """
  for name, mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
    if getattr(sys, name) is None:
      # It gets the lowest free descriptor: the one that was closed.
      stream = open(os.devnull, mode, encoding='utf-8')  # noqa: SIM115
      os.set_inheritable(stream.fileno(), True)
      setattr(sys, name, stream)


class Console:
  """Shows progress text, prefixed with the title of the current task."""

  def __init__(self, stream: Any = None) -> None:
    self._stream = stream or sys.stderr
    is_dumb = os.environ.get('TERM') in ('dumb', 'unknown')
    if self._stream.isatty() and not is_dumb:
      self._clear = _CLEAR  # before each line, which replaces the last
      self._interval = 0.2
      self._tick = 1.0
    else:
      self._clear = ''
      self._interval = _interval()
      self._tick = max(self._interval, 0.1)
    self._title = ''
    self._last_shown = 0.0

  def line(self, text: str = '') -> None:
    """Writes a permanent line."""
    self._write(f'{text}\n')

  def start(self, title: str, text: str = '...') -> None:
    """Starts a task, and shows a text; its title, if any, prefixes each."""
    self._title = title
    self._last_shown = -math.inf
    self.update(text)

  def update(self, text: str) -> bool:
    """Shows the task's progress unless the last update is recent.

    Returns whether it was shown.
    """
    if time.monotonic() - self._last_shown < self._interval:
      return False
    self._last_shown = time.monotonic()
    if self._title:
      text = f'{self._title}  {text}'
    self._show(text)
    if text.endswith('...'):
      self._wait(text)
    return True

  def _show(self, text: str) -> None:
    """Writes a text that a terminal rewrites."""
    end_wait()
    self._stream.write(self._shown(text))
    self._stream.flush()

  def _shown(self, text: str) -> Escaped:
    """Returns what shows a text that a terminal rewrites."""
    if not self._clear:
      return escaped(f'{text}\n')
    line = _cut(escaped(text), self._columns() - 1)  # some wrap a full line
    return Escaped(self._clear + line)

  def _wait(self, text: str) -> None:
    """Repeats a text with its age, until a console writes something else."""
    try:  # a copy, as the stream may be redirected meanwhile
      stream = os.fdopen(os.dup(self._stream.fileno()), 'w', errors='replace')
    except OSError:  # not a file
      return
    wait = _Wait(stream, self._tick, lambda age: self._shown(f'{text}  {age}'))
    _waits.append(wait)
    wait.start()

  def _columns(self) -> int:
    try:  # `shutil` asks stdout, which may be a log
      return os.get_terminal_size(self._stream.fileno()).columns
    except OSError:
      return shutil.get_terminal_size().columns

  def finish(self, text: str) -> None:
    """Ends the task with a permanent line."""
    self.line(f'{self._title}  {text}')

  @contextlib.contextmanager
  def task(self, title: str) -> Iterator[None]:
    """Shows the block as a task, and then its duration."""
    start = time.monotonic()
    self.start(title)
    try:
      yield
    except BaseException:
      self.finish('failed')
      raise
    self.finish(duration(time.monotonic() - start))

  @contextlib.contextmanager
  def passing(self, text: str) -> Iterator[None]:
    """Shows a text during the block; in a file or pipe, if it takes long."""
    if self._clear:
      self._show(text)
    self._wait(text)
    try:
      yield
    finally:
      self.clear()

  def clear(self) -> None:
    """Erases the current line of a terminal, for other output."""
    self._write('')

  def _write(self, text: str) -> None:
    """Writes over the current line of a terminal."""
    end_wait()
    self._stream.write(Escaped(self._clear + escaped(text)))
    self._stream.flush()


def _cut(text: str, columns: int) -> str:
  """Cuts a text to a line; some characters, as of Chinese, take two columns."""
  ends = [*itertools.accumulate(map(_width, text))]
  if not ends or ends[-1] <= columns:
    return text
  return f'{text[: bisect.bisect(ends, columns - 1)]}\u2026'


def _width(character: str) -> int:
  return 2 if unicodedata.east_asian_width(character) in 'WF' else 1


def duration(seconds: float) -> str:
  """Formats a duration: '42 s', '3 min 05 s', '2 h 10 min'."""
  seconds = round(seconds)
  if seconds < 60:
    return f'{seconds} s'
  if seconds < 3600:
    return f'{seconds // 60} min {seconds % 60:02d} s'
  return f'{seconds // 3600} h {seconds % 3600 // 60:02d} min'


def _interval() -> float:
  text = os.environ.get(INTERVAL) or '10'
  try:
    return float(text)
  except ValueError:
    raise UserError(
      f'{INTERVAL} = {text!r}: expected a number of seconds, such as 10'
    ) from None


class _Wait(threading.Thread):
  """Writes how long something has taken, until `end` is called."""

  def __init__(
    self, stream: TextIO, seconds: float, shown: Callable[[str], str]
  ) -> None:
    super().__init__(daemon=True)
    self._stream = stream
    self._seconds = seconds
    self._shown = shown
    self._ended = threading.Event()
    self._lock = threading.RLock()  # a signal's handler may write, too

  def run(self) -> None:
    begun = time.monotonic()
    with self._stream, contextlib.suppress(OSError):
      while not self._ended.wait(self._seconds):
        with self._lock:
          if not self._ended.is_set():
            self._stream.write(self._shown(duration(time.monotonic() - begun)))
            self._stream.flush()

  def end(self) -> None:
    """Ends it; nothing is written afterwards."""
    with self._lock:
      self._ended.set()


def end_wait() -> None:
  """Stops showing the age of a text, before other output."""
  while _waits:
    _waits.pop().end()


# Facts of the process, whatever it runs: its terminal has one line that waits,
# and its file descriptors 1 and 2 lead to one log or to none. Threads ask, too.
_waits: list[_Wait] = []  # those that have not ended
os.register_at_fork(after_in_child=_waits.clear)  # it has no such threads
_beside_log: Console | None = None


def console() -> Console:
  """Returns a console that reaches the user even while stderr is a log."""
  return _beside_log or Console()


def console_beside_log() -> Console:
  """Returns the user's console if output goes to a log, else a silent one."""
  return _beside_log or Console(io.StringIO())


class Kept:
  """What a process has printed for a log that is not yet open.

  Attributes:
    data: the bytes, until a log has them.
  """

  def __init__(self) -> None:
    self.data = b''


@contextlib.contextmanager
def to_log(path: str, before: Kept | None = None) -> Iterator[None]:
  """Appends this process's output, except that of `console()`, to a file.

  Args:
    path: of the file.
    before: what the file gets first.
  """
  flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
  descriptor = os.open(path, flags, 0o666)
  with os.fdopen(descriptor, 'ab', 0) as log, _redirected(log.fileno()):
    if before:
      with contextlib.suppress(OSError):  # the log's disk is full
        log.write(before.data)
      before.data = b''
    yield


@contextlib.contextmanager
def kept(by: Kept | None = None) -> Iterator[None]:
  """Keeps this process's output from the user.

  Args:
    by: gets the output, for a log.
  """
  with tempfile.TemporaryFile(buffering=0) as file:
    try:
      with _redirected(file.fileno()):
        yield
    finally:
      if by:
        file.seek(0)
        by.data += file.read()


@contextlib.contextmanager
def _redirected(log: int) -> Iterator[None]:
  """Redirects stdout and stderr to a file descriptor."""
  global _beside_log
  _flush()
  stdout, stderr = os.dup(1), os.dup(2)
  with os.fdopen(os.dup(2), 'w', buffering=1, errors='replace') as stream:
    _beside_log = Console(Printable(stream))
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
      yield
    finally:
      _flush()
      with open(os.devnull, 'wb') as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        _flush()  # what the log's full disk did not take
      _beside_log.clear()
      _beside_log = None
      os.dup2(stdout, 1)
      os.dup2(stderr, 2)
      os.close(stdout)
      os.close(stderr)


def _flush() -> None:
  for stream in (sys.stdout, sys.stderr):
    # The log's disk is full.
    with contextlib.suppress(OSError, CannotPrint):
      stream.flush()
