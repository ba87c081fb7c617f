"""A table: the runs of each model put together, column by column.

A cell has mean and standard deviation over the runs of a model, its seeds.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Optional

from synth_mtf.errors import UserError
from synth_mtf.results.runs import Run
from synth_mtf.results.seeds import by_model
from synth_mtf.results.tables.checkpoints import Choice, Step
from synth_mtf.results.tables.columns import Column, Found, mean
from synth_mtf.results.tables.layouts import Layout


@dataclasses.dataclass(frozen=True)
class Numbers:
  """What the runs of a model have of one measure.

  Attributes:
    found: of each run, in their order; None where it is missing.
  """

  found: Sequence[Optional[Found]]

  @property
  def values(self) -> list[Optional[float]]:
    """Those of the runs; None for one that is missing or not defined."""
    return [one.value if one else None for one in self.found]

  @property
  def mean(self) -> Optional[float]:
    """Over the runs, or None where one has no value."""
    values = [value for value in self.values if value is not None]
    return mean(values) if len(values) == len(self.found) else None

  @property
  def deviation(self) -> Optional[float]:
    """The standard deviation over several runs, or None."""
    values = [value for value in self.values if value is not None]
    if len(values) < len(self.found) or len(values) < 2:
      return None
    return statistics.stdev(values)

  @property
  def standard_error(self) -> Optional[float]:
    """Over the examples, of a typical run: the root mean square over them."""
    errors = [one.standard_error if one else None for one in self.found]
    known = [error for error in errors if error is not None]
    if not known or len(known) < len(errors):
      return None
    return math.sqrt(mean([error**2 for error in known]))

  @property
  def n(self) -> Optional[int]:
    """How many examples or tokens there were, if all runs agree."""
    counts = {
      one.result.n if one and one.result else None for one in self.found
    }
    return counts.pop() if len(counts) == 1 else None


@dataclasses.dataclass(frozen=True)
class Model:
  """A row: one model, trained once or with several seeds.

  Attributes:
    label: its name, which no other row has.
    known_as: its name by the paper.
    runs: the names of its runs.
    seeds: of the runs, None where nothing tells them.
    cells: by the keys of the columns, a `Numbers` for each measure.
    ahead: of the runs that went on after they were evaluated, the steps that
      their checkpoints are at.
  """

  label: str
  known_as: str
  runs: Sequence[str]
  seeds: Sequence[Optional[int]]
  cells: Mapping[str, Sequence[Numbers]]
  ahead: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Table:
  """What is to be written down.

  Attributes:
    title: what it shows.
    checkpoint: which ones it was asked to show, in words.
    columns: in their order.
    models: the rows.
  """

  title: str
  checkpoint: str
  columns: Sequence[Column]
  models: Sequence[Model]

  @property
  def found(self) -> Sequence[Found]:
    """All the scores in it."""
    return [
      one
      for model in self.models
      for numbers in model.cells.values()
      for measured in numbers
      for one in measured.found
      if one and one.result
    ]


def make(runs: Sequence[Run], layout: Layout, choice: Choice) -> Table:
  """Puts runs into the columns of a layout.

  Args:
    runs: at least one.
    layout: the columns.
    choice: of the checkpoints.

  Raises:
    UserError: no run has what the layout shows, or one lacks the step that is
      asked for.
  """
  if isinstance(choice, Step):
    _check_step(runs, choice.number)
  table = Table(
    title=layout.title,
    checkpoint=str(choice),
    columns=layout.columns,
    models=[
      Model(
        label=label,
        known_as=same[0].label,
        runs=[run.name for run in same],
        seeds=[run.seed for run in same],
        cells={
          column.key: _numbers(column, same, choice)
          for column in layout.columns
        },
        ahead={run.name: run.steps[-1] for run in same if _is_ahead(run)},
      )
      for label, same in by_model(runs).items()
    ],
  )
  if layout.needs_scores and not table.found:
    there = sorted({result.task for run in runs for result in run.results})
    raise UserError(
      f'no run has what is in the table ({layout.title}). '
      + (
        f'Evaluated were: {", ".join(there)}. Leave --layout out to see them.'
        if there
        else 'None of them has been evaluated.'
      )
    )
  return table


def _numbers(
  column: Column, runs: Sequence[Run], choice: Choice
) -> Sequence[Numbers]:
  return [
    Numbers(found) for found in zip(*(column.found(r, choice) for r in runs))
  ]


def _is_ahead(run: Run) -> bool:
  """Whether a run has a checkpoint later than all that were evaluated."""
  evaluated = [result.step for result in run.results]
  return bool(evaluated and run.steps) and run.steps[-1] > max(evaluated)


def _check_step(runs: Sequence[Run], step: int) -> None:
  for run in runs:
    there = sorted({result.step for result in run.results})
    if step not in there:
      raise UserError(
        f'--checkpoint={step}: {run.name} has not been evaluated at that step; '
        + (
          f'expected one of {", ".join(map(str, there))}, best, or last.'
          if there
          else 'nor at any other.'
        )
      )
