"""Makes tables of runs, with one row per model.

Each run contributes the scores of one checkpoint to each column. Runs that
differ only in their seeds belong to one model, whose row shows their mean and
standard deviation.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import pandas as pd

from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.results import layouts, scores
from synth_mtf.results.layouts import Column, Layout
from synth_mtf.results.runs import Run

LAST, BEST = 'last', 'best'
# If a task was evaluated on several splits, the first in this order is used.
_SPLITS = {'validation': '', 'test': ' '}


@dataclasses.dataclass(frozen=True)
class Table:
  """The numbers of a table.

  Attributes:
    layout: what it shows.
    checkpoint: LAST, BEST or a step.
    columns: from left to right.
    models: the runs of each row, by model name.
    cells: one row for each number of each run, as in `scores.frame`, with the
      key of its `column` and its `name` in `Column.named`. An undefined number
      has the `value` NaN; a missing number has no row.
    numbers: mean, deviation, standard_error and n, by (model, name); NaN if a
      run lacks the number.
  """

  layout: Layout
  checkpoint: str
  columns: Sequence[Column]
  models: Mapping[str, Sequence[Run]]
  cells: pd.DataFrame
  numbers: pd.DataFrame

  @property
  def scores(self) -> pd.DataFrame:
    """The cells that hold task scores."""
    return self.cells.dropna(subset='task')

  @property
  def is_generated(self) -> bool:
    """Whether a score was measured on generated samples."""
    return bool((self.scores.data == paths.GENERATED).any())


def make(
  runs: Sequence[Run], layout: Optional[str] = None, checkpoint: str = LAST
) -> Table:
  """Makes a table of runs.

  Args:
    runs: at least one.
    layout: a key of `layouts.LAYOUTS`; None shows everything the runs have.
    checkpoint: 'last' for the last one evaluated, 'best' for the one with the
      best mean over a task's metrics, or a step.

  Raises:
    UserError: no run has a score in the layout, or a run was not evaluated at
      the step.
  """
  frame = scores.frame(runs, products=layout == 'speed')
  _check(checkpoint, runs)
  shape = layouts.LAYOUTS[layout] if layout else layouts.overview(frame.tag)
  tags = [set(frame.tag[frame.run == run.name]) for run in runs]
  columns = [
    column
    for column in shape.columns
    if not column.optional
    or any(all(one.tags & of for one in column.over or [column]) for of in tags)
  ]
  cells = _cells(frame, columns, checkpoint)
  models = scores.by_model(runs)
  numbers = _numbers(cells, columns, models)
  table = Table(shape, checkpoint, columns, models, cells, numbers)
  if shape.needs_scores and table.scores.empty:
    tasks = ', '.join(sorted(set(frame.task.dropna())))
    raise UserError(
      f'no run has a score of this table ({shape.title}). '
      f'Evaluated tasks: {tasks or "none"}. Leave out --layout to see them.'
    )
  return table


def _check(checkpoint: str, runs: Sequence[Run]) -> None:
  if checkpoint not in (LAST, BEST) and not checkpoint.isdecimal():
    raise UserError(
      f'--checkpoint={checkpoint}: expected best, last, or a step such as 1000.'
    )
  for run in runs if checkpoint.isdecimal() else ():
    steps = sorted({result.step for result in run.results})
    if int(checkpoint) not in steps:
      known = f'; expected one of {", ".join(map(str, steps))}, best, or last'
      raise UserError(
        f'--checkpoint={checkpoint}: {run.name} has not been evaluated at that '
        f'step{known if steps else ""}.'
      )


def _cells(
  frame: pd.DataFrame, columns: Sequence[Column], checkpoint: str
) -> pd.DataFrame:
  """Selects each run's numbers, from one split and checkpoint per column."""
  wanted = pd.DataFrame(
    {
      'tag': tag,
      'column': column.key,
      'size': len(column.measures),
      'name': name,
      'measure': measure,
    }
    for column in columns
    for name, measure in column.named.items()
    for tag in measure.tags
  )
  # Different commands evaluate text and tokens, so their last steps may differ.
  unit = frame.unit.replace('question', 'example')
  by_kind = frame.groupby(['run', unit])
  last = by_kind.step.transform('max')
  found = wanted.merge(frame.assign(last=last), on='tag')
  scale = found.measure.map(lambda measure: measure.scale)
  found['value'] = [
    measure.of(measure.scale * value)
    for measure, value in zip(found.measure, found.value)
  ]
  found['standard_error'] = (found.standard_error * scale.abs()).where(
    found.value.notna()
  )
  first = found.split.map(lambda split: _SPLITS.get(split, split))
  by_column = [found.run, found.column]
  found = found[first == first.groupby(by_column).transform('min')]
  found = found.drop_duplicates(['run', 'name', 'step'])
  if checkpoint == LAST:
    found = found[found.step == found['last']]
  elif checkpoint == BEST:
    found = found[_is_best(found)]
  else:
    found = found[(found.step == int(checkpoint)) | found.task.isna()]
  averages = [
    {
      'model': model,
      'run': run,
      'step': 0,
      'value': average,
      'column': column.key,
      'name': column.key,
    }
    for (model, run), of_run in found.groupby(['model', 'run'], sort=False)
    for column in columns
    if column.over
    for average in [column.average(dict(zip(of_run.name, of_run.value)))]
    if average is not None
  ]
  return pd.DataFrame(
    [*found.to_dict('records'), *averages],
    columns=[*scores.COLUMNS, 'column', 'name'],
  ).astype(scores.COLUMNS)


def _is_best(found: pd.DataFrame) -> Any:
  """Whether each row is at the best step of its run and column.

  Steps are ranked by the mean of their scores; a step with a missing or
  undefined score ranks last.
  """
  upward = found.measure.map(lambda measure: measure.better > 0)
  steps = found.assign(good=found.value.where(upward, -found.value)).groupby(
    ['run', 'column', 'step']
  )
  whole = steps.good.count() == steps['size'].first()
  quality = steps.good.mean().where(whole, -np.inf)
  best = quality.groupby(['run', 'column']).idxmax()
  return pd.MultiIndex.from_frame(found[quality.index.names]).isin(best)


def _numbers(
  cells: pd.DataFrame,
  columns: Sequence[Column],
  models: Mapping[str, Sequence[Run]],
) -> pd.DataFrame:
  """Computes mean and spread over each model's runs; NaN if any lacks it."""
  every = pd.MultiIndex.from_tuples(
    [
      (model, run.name, name)
      for model, runs in models.items()
      for run in runs
      for column in columns
      for name in column.named
    ],
    names=['model', 'run', 'name'],
  )
  groups = (
    cells.set_index(every.names)
    .reindex(every)
    .groupby(['model', 'name'], sort=False)
  )
  return pd.DataFrame(
    {
      'mean': groups.value.agg(lambda x: x.mean(skipna=False)),
      'deviation': groups.value.agg(lambda x: x.std(skipna=False)),
      # The root mean square of the runs' standard errors over examples.
      'standard_error': groups.standard_error.agg(
        lambda x: (x**2).mean(skipna=False) ** 0.5
      ),
      'n': groups.n.agg(
        lambda n: n.iloc[0] if n.nunique(dropna=False) == 1 else pd.NA
      ),
    }
  )
