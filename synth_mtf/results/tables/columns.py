"""What stands in a column of a table, for one run."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Optional, Union

from synth_mtf.results.records import Result
from synth_mtf.results.runs import Run
from synth_mtf.results.tables.checkpoints import Choice

PREFIX = 'synth_'
# The splits to take where a task was evaluated on several.
_SPLITS = ('validation', 'test')


@dataclasses.dataclass(frozen=True)
class Found:
  """A number of one run.

  Attributes:
    value: None where it is not defined, as a correlation of equal answers.
    result: the result that it is of, or None for what is not a score.
    standard_error: None where it is not known.
  """

  value: Optional[float]
  result: Optional[Result] = None
  standard_error: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Measure:
  """One of the numbers of a column.

  Attributes:
    name: of it, where a column has several.
    tags: T5's `<task>/<metric>`, of which a run has one; the tasks of this
      package have a prefix.
    shown: makes its text.
    higher_is_better: None where no number is better than another.
    of: what is shown of the metric's value.
    slope: of the function `of` at a value, for its standard error.
    varies: whether runs of one model may differ in it.
  """

  name: str
  tags: Sequence[str] = ()
  shown: Callable[[float], str] = '{:.1f}'.format
  higher_is_better: Optional[bool] = True
  of: Callable[[float], float] = lambda value: value
  slope: Callable[[float], float] = lambda value: 1.0
  varies: bool = True


@dataclasses.dataclass(frozen=True)
class TaskColumn:
  """Scores of a task, or of tasks that count as one.

  Attributes:
    key: its name, which no other column has.
    header: its name in a table whose title says what it is about.
    measures: the numbers in it.
    meaning: a sentence on what it shows, where the header does not tell.
  """

  key: str
  header: str
  measures: Sequence[Measure]
  meaning: str = ''

  def found(self, run: Run, choice: Choice) -> Sequence[Optional[Found]]:
    """Returns each score, or None: of one split, at the same checkpoint."""
    results = self._results(run)
    by_step: dict[int, list[Optional[Found]]] = {
      step: [_of(measure, results, step) for measure in self.measures]
      for step in sorted({one.step for one in results})
    }
    scores = {
      step: [self._better(*pair) for pair in zip(self.measures, found)]
      for step, found in by_step.items()
    }
    step = choice.step(scores, _last_step(run, results))
    return by_step.get(step, [None] * len(self.measures))

  def is_in(self, run: Run) -> bool:
    """Whether a run has any of its scores."""
    return bool(self._results(run))

  def _results(self, run: Run) -> list[Result]:
    tags = {tag for measure in self.measures for tag in measure.tags}
    found = [one for one in run.results if tag_of(one) in tags]
    splits = sorted({one.split for one in found}, key=_preference)
    return [one for one in found if one.split == splits[0]]

  @staticmethod
  def _better(measure: Measure, found: Optional[Found]) -> Optional[float]:
    """The greater the better; NaN where it is not defined."""
    if found is None:
      return None
    if found.value is None:
      return math.nan
    return found.value if measure.higher_is_better else -found.value


@dataclasses.dataclass(frozen=True)
class AverageColumn:
  """T5's average over tasks: inside each task first, then over the tasks.

  What is not defined, such as the correlation of answers that are all alike,
  counts as 0; what is missing makes the average missing.
  """

  key: str
  header: str
  over: Sequence[TaskColumn]
  measures: Sequence[Measure] = (Measure('average'),)
  meaning: str = ''

  def found(self, run: Run, choice: Choice) -> Sequence[Optional[Found]]:
    """Returns the average, or None where a score is missing."""
    means = []
    for column in self.over:
      scores = column.found(run, choice)
      if any(score is None for score in scores):
        return [None]
      means.append(mean([score.value or 0.0 for score in scores if score]))
    return [Found(mean(means))]

  def is_in(self, run: Run) -> bool:
    """Whether a run has all of its tasks."""
    return all(column.is_in(run) for column in self.over)


ScoreColumn = Union[TaskColumn, AverageColumn]


@dataclasses.dataclass(frozen=True)
class FactColumn:
  """What a run is, not what it scores.

  Attributes:
    fact: finds it; None where it cannot be had.
  """

  key: str
  header: str
  fact: Callable[[Run], Optional[float]]
  measure: Measure
  meaning: str = ''

  @property
  def measures(self) -> Sequence[Measure]:
    """The one that it is."""
    return [self.measure]

  def found(self, run: Run, choice: Choice) -> Sequence[Optional[Found]]:
    """Returns the fact, whatever the checkpoint is."""
    del choice
    value = self.fact(run)
    return [None if value is None else Found(value)]


Column = Union[TaskColumn, AverageColumn, FactColumn]


def mean(values: Sequence[float]) -> float:
  """The arithmetic mean."""
  return sum(values) / len(values)


def tag_of(result: Result) -> str:
  """T5's name of a score, `<task>/<metric>`, for tasks of ours too."""
  return f'{result.task.removeprefix(PREFIX)}/{result.metric}'


def _of(
  measure: Measure, results: Sequence[Result], step: int
) -> Optional[Found]:
  at_step = {tag_of(one): one for one in results if one.step == step}
  for result in (at_step[tag] for tag in measure.tags if tag in at_step):
    value, error = result.value, result.standard_error
    if value is None:
      return Found(None, result)
    return Found(
      measure.of(value),
      result,
      None if error is None else error * abs(measure.slope(value)),
    )
  return None


def _last_step(run: Run, results: Sequence[Result]) -> int:
  """The last step at which a run was evaluated in the way of these results.

  What is decoded and what is measured token by token are evaluated apart.
  """
  units = {one.unit for one in results}
  return max((r.step for r in run.results if r.unit in units), default=0)


def _preference(split: str) -> tuple[int, str]:
  known = _SPLITS.index(split) if split in _SPLITS else len(_SPLITS)
  return known, split
