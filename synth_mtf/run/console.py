"""What a person sees while something long runs; needs no TensorFlow.

On a terminal, one line is rewritten in place; elsewhere (a pipe, a file) a
plain line is printed now and then; so it is without `rich`, since the command
line has to work on a broken installation.
"""

import contextlib
import dataclasses
import os
import sys
import time
from typing import Any, Optional, TextIO

_SECONDS_BETWEEN_PLAIN_LINES = 10.0


@dataclasses.dataclass(frozen=True)
class TrainingProgress:
  """How far a training run is.

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

  @property
  def seconds_left(self) -> float:
    """How long the rest takes at the present speed."""
    return (self.total - self.step) / max(self.steps_per_second, 1e-9)

  def __str__(self) -> str:
    return (
      f'step {self.step}/{self.total}  loss {self.loss:.3f}  '
      f'{self.steps_per_second:.1f} steps/s  {duration(self.seconds_left)} left'
    )


class Console:
  """Shows changing text on a stream, below a title."""

  def __init__(self, stream: Optional[TextIO] = None) -> None:
    self._stream = stream or sys.stderr
    self._rich: Any = None
    with contextlib.suppress(ImportError):
      import rich.console

      self._rich = rich.console.Console(
        file=self._stream, force_terminal=self._stream.isatty(), highlight=False
      )
    self._rewrites = self._rich is not None and (
      self._rich.is_terminal and not self._rich.is_dumb_terminal
    )
    self._title = ''
    self._is_open = False  # a line is shown that is to be rewritten
    self._last_shown = -_SECONDS_BETWEEN_PLAIN_LINES

  def line(self, text: str = '') -> None:
    """Writes a line that stays."""
    self._clear()
    print(text, file=self._stream, flush=True)

  def start(self, title: str) -> None:
    """Begins a piece of work, with `title` before each of its texts."""
    self._title = title
    self._last_shown = time.monotonic()
    if self._rewrites:
      self.update('...')
    else:
      self.line(f'{title}  ...')

  def update(self, text: str) -> None:
    """Shows how far the work has come, cut to one line of the terminal."""
    if self._rewrites:
      import rich.text

      self._clear()
      self._is_open = True
      self._rich.print(
        rich.text.Text(f'{self._title}  {text}'),
        end='',
        no_wrap=True,
        overflow='ellipsis',
        # A line that is quite full would wrap on some terminals.
        width=self._columns() - 1,
      )
    elif time.monotonic() - self._last_shown >= _SECONDS_BETWEEN_PLAIN_LINES:
      self._last_shown = time.monotonic()
      self.line(f'{self._title}  {text}')

  def finish(self, text: str) -> None:
    """Ends the work with a line that stays."""
    self.line(f'{self._title}  {text}')

  def leave(self) -> None:
    """Lets what is shown stand; others may write behind it."""
    if self._is_open:
      self._is_open = False
      print(file=self._stream, flush=True)

  def _columns(self) -> int:
    try:  # rich would ask stdout, which may be a log
      return os.get_terminal_size(self._stream.fileno()).columns
    except OSError:
      return int(self._rich.width)

  def _clear(self) -> None:
    self._is_open = False
    if self._rewrites:
      from rich.control import Control
      from rich.segment import ControlType

      self._rich.control(
        Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
      )


def duration(seconds: float) -> str:
  """Returns a time as a person says it: '42 s', '3 min 05 s', '2 h 10 min'."""
  seconds = round(seconds)
  if seconds < 60:
    return f'{seconds} s'
  if seconds < 3600:
    return f'{seconds // 60} min {seconds % 60:02d} s'
  return f'{seconds // 3600} h {seconds % 3600 // 60:02d} min'
