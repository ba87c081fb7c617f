"""Estimates how long a demo will still take."""

import dataclasses
import math
import re
import time
from collections.abc import Sequence

from synth_mtf.demo.stages import Stage


@dataclasses.dataclass
class _Todo:
  """What a stage still has to do.

  Attributes:
    starts: how long all but training takes, in starts of a process.
    steps: how many it still trains.
    begun: when the stage began; None before that.
    first: step and time of its first report of training.
  """

  starts: float
  steps: int
  begun: float | None = None
  first: tuple[int, float] | None = None


class Pace:
  """Estimates how long all stages will still take, from those that ran.

  They tell how long it takes to start a process, and to train a step. Times are
  shares of the machine's: while two stages run, each gets half of a second.
  `Stage.done` keeps them for a demo that resumes.

  Attributes:
    start_seconds: from the beginning of a stage to the first report of its
      training; 0 before one is known.
    step_seconds: of a step of pretraining; 0 before one is known.
  """

  def __init__(self, stages: Sequence[Stage]) -> None:
    self.start_seconds = self.step_seconds = 0.0
    self._todo: dict[Stage, _Todo] = {}
    self._share, self._counted_until = 0.0, time.monotonic()
    for stage in stages:
      if stage.done.exists():
        self._remember(stage.done.read_text())
      else:
        self._todo[stage] = _Todo(stage.starts, stage.steps)

  def _remember(self, text: str) -> None:
    try:
      step_seconds, start_seconds = map(float, text.split())
    except ValueError:  # of an earlier version
      return
    self.step_seconds = step_seconds or self.step_seconds
    self.start_seconds = start_seconds or self.start_seconds

  def begin(self, stage: Stage) -> None:
    """Notes that a stage begins."""
    self._todo[stage].begun = self._now()

  def end(self, stage: Stage) -> None:
    """Notes that a stage has ended, and marks it as done."""
    self._now()
    del self._todo[stage]
    stage.done.write_text(f'{self.step_seconds:.6f} {self.start_seconds:.3f}\n')

  def hear(self, stage: Stage, line: str) -> None:
    """Takes the progress of training from a stage's line."""
    match = re.match(r'train  (\d+)/(\d+)', line)
    if not match:
      return
    now, todo = self._now(), self._todo[stage]
    step, last_step = int(match[1]), int(match[2])
    todo.steps = last_step - step
    if todo.first is None:
      todo.first = step, now
      self.start_seconds = now - (todo.begun or 0)
      todo.starts = 0
      return
    first_step, first_time = todo.first
    if step > first_step:
      seconds = (now - first_time) / (step - first_step)
      self.step_seconds = seconds / stage.step_work

  def left(self) -> str:
    """Returns the time left in words; '' before it is known."""
    if not self.step_seconds:
      return ''
    now, seconds = self._now(), 0.0
    for stage, todo in self._todo.items():
      start = todo.starts * self.start_seconds
      if todo.begun is not None:
        start = max(start - (now - todo.begun), 0)
      seconds += start + todo.steps * stage.step_work * self.step_seconds
    return f'{max(math.ceil(seconds / 60), 1)} min left'

  def _now(self) -> float:
    """Returns the time as a running stage counts it.

    Of each second, it gets the share that is left by the others.
    """
    now = time.monotonic()
    running = sum(todo.begun is not None for todo in self._todo.values())
    self._share += (now - self._counted_until) / max(running, 1)
    self._counted_until = now
    return self._share
