"""Shows the progress of long work, and needs no TensorFlow to do so.

A terminal shows one line that is rewritten in place. A pipe or a file gets a
plain line every ten seconds, or as often as `SYNTH_MTF_PROGRESS_SECONDS` says.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Optional, TextIO

INTERVAL = 'SYNTH_MTF_PROGRESS_SECONDS'
_CLEAR = '\r\x1b[2K'  # back to the start of the line, which is erased


@dataclasses.dataclass(frozen=True)
class TrainingProgress:
  """How far a training run has come.

  Attributes:
    step: steps done, including those of earlier processes.
    total: the step at which the run ends.
    loss: mean training loss since the last report, as the host computes it:
      the sum over the target tokens divided by all positions, padding included.
    steps_per_second: speed of this process, without its first step.
  """

  step: int
  total: int
  loss: float
  steps_per_second: float

  def __str__(self) -> str:
    seconds_left = (self.total - self.step) / max(self.steps_per_second, 1e-9)
    return (
      f'step {self.step}/{self.total}  loss {self.loss:.3f}  '
      f'{self.steps_per_second:.1f} steps/s  {duration(seconds_left)} left'
    )


class Console:
  """Shows changing text, each after the title of the current task."""

  def __init__(self, stream: Optional[TextIO] = None) -> None:
    self._stream = stream or sys.stderr
    self._rewrites = self._stream.isatty() and (
      os.environ.get('TERM') not in ('dumb', 'unknown')
    )
    self._interval = float(os.environ.get(INTERVAL, 10))
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
    """Shows how far the task has come, cut to one line of the terminal."""
    text = f'{self._title}  {text}'
    if self._rewrites:
      width = self._columns() - 1  # some terminals wrap a full line
      if len(text) > width:
        text = f'{text[: width - 1]}\u2026'
      self._is_open = True
      print(f'{_CLEAR}{text}', end='', file=self._stream, flush=True)
    elif time.monotonic() - self._last_shown >= self._interval:
      self._last_shown = time.monotonic()
      self.line(text)

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

  def _columns(self) -> int:
    try:  # stdout, of which `shutil` asks, may be a log
      return os.get_terminal_size(self._stream.fileno()).columns
    except OSError:
      return shutil.get_terminal_size().columns


def duration(seconds: float) -> str:
  """Formats a time: '42 s', '3 min 05 s', '2 h 10 min'."""
  seconds = round(seconds)
  if seconds < 60:
    return f'{seconds} s'
  if seconds < 3600:
    return f'{seconds // 60} min {seconds % 60:02d} s'
  return f'{seconds // 3600} h {seconds % 3600 // 60:02d} min'
