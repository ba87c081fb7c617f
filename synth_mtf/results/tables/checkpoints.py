"""At which checkpoint a score is taken."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Optional, Protocol

from synth_mtf.errors import UserError

# The scores of a task at each step: None where one is missing, NaN where it is
# not defined; the greater the better.
Scores = Mapping[int, Sequence[Optional[float]]]


class Choice(Protocol):
  """Chooses the step at which a task is looked at."""

  def step(self, scores: Scores, last: int) -> int:
    """Returns a step, which need not have any score.

    Args:
      scores: of the task.
      last: the last step at which the run has been evaluated.
    """

  def __str__(self) -> str:
    """Returns what a caption says of it."""


@dataclasses.dataclass(frozen=True)
class Last:
  """The last checkpoint that was evaluated, the same for all tasks."""

  def step(self, scores: Scores, last: int) -> int:
    """Returns the last step."""
    del scores
    return last

  def __str__(self) -> str:
    return 'at the last checkpoint evaluated'


@dataclasses.dataclass(frozen=True)
class Best:
  """The best checkpoint of each task, by the mean of its metrics."""

  def step(self, scores: Scores, last: int) -> int:
    """Returns the best step, the earliest of several that are equally good."""
    return max(sorted(scores), key=lambda s: _mean(scores[s]), default=last)

  def __str__(self) -> str:
    return 'at the best checkpoint of each task'


@dataclasses.dataclass(frozen=True)
class Step:
  """One step for all."""

  number: int

  def step(self, scores: Scores, last: int) -> int:
    """Returns the step."""
    del scores, last
    return self.number

  def __str__(self) -> str:
    return f'at step {self.number}'


_NAMED: Mapping[str, Choice] = {'last': Last(), 'best': Best()}


def choice(word: str) -> Choice:
  """Reads 'best', 'last' or a step.

  Raises:
    UserError: it is none of them.
  """
  if word in _NAMED:
    return _NAMED[word]
  if word.isdecimal():
    return Step(int(word))
  raise UserError(
    f'--checkpoint={word}: expected best, last, or a step such as 1000.'
  )


def _mean(scores: Sequence[Optional[float]]) -> float:
  """The mean; less than any number where a score is missing or undefined."""
  if any(score is None or math.isnan(score) for score in scores):
    return -math.inf
  return sum(score for score in scores if score is not None) / len(scores)
