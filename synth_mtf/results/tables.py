"""Makes tables of runs, with one row per model.

Each run contributes the scores of one checkpoint to each column. Runs that
differ only in their seeds belong to one model, whose row shows their mean and
standard deviation.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.results import layouts
from synth_mtf.results.runs import Run, by_model

LAST, BEST = 'last', 'best'
# If a task was evaluated on several splits at a checkpoint, the first in this
# order is used.
_SPLITS = {'validation': '', 'test': ' '}


COLUMNS: dict[str, Any] = {
  'model': object,  # the model's unique name in tables
  'run': object,
  # T5's name for a score, <task>/<metric>, also of our tasks; or a fact
  'tag': object,
  'task': object,  # None for a fact
  'split': object,
  'metric': object,
  'step': int,
  'value': float,  # NaN if undefined
  'n': 'Int64',
  'unit': object,
  'standard_error': float,
  'data': object,
  'digest': object,
}


@dataclasses.dataclass(frozen=True)
class Table:
  """The numbers of a table.

  Attributes:
    layout: what it shows.
    checkpoint: LAST, BEST or a step.
    columns: from left to right.
    models: the runs of each row, by model name.
    cells: one row for each number of each run, as in `frame`, with the
      key of its `column` and its `name` in `Column.tags`. An undefined number
      has the `value` NaN; a missing number has no row.
  """

  layout: layouts.Layout
  checkpoint: str
  columns: Sequence[layouts.Column]
  models: Mapping[str, Sequence[Run]]
  cells: pd.DataFrame

  @property
  def named(self) -> dict[str, layouts.Column]:
    """The column of each number, by the number's name."""
    return {name: column for column in self.columns for name in column.tags}

  @property
  def scores(self) -> pd.DataFrame:
    """The cells that hold task scores."""
    return self.cells.dropna(subset='task')

  @property
  def is_generated(self) -> bool:
    """Whether a score was measured on generated samples."""
    return bool((self.scores.data == paths.GENERATED).any())

  @functools.cached_property
  def numbers(self) -> pd.DataFrame:
    """Mean, deviation, standard_error and n, by (model, name).

    They are NaN if a run of the model lacks the number.
    """
    every = [
      (model, run.name, name)
      for model, runs in self.models.items()
      for run in runs
      for name in self.named
    ]
    index = pd.MultiIndex.from_tuples(every, names=['model', 'run', 'name'])
    cells = self.cells.set_index(index.names).reindex(index)
    groups = cells.groupby(['model', 'name'], sort=False)
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


def make(
  runs: Sequence[Run], layout: str | None = None, checkpoint: str = LAST
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
  found = frame(runs, products=layout == 'speed')
  steps = set.intersection(*({x.step for x in run.results} for run in runs))
  if checkpoint not in (LAST, BEST, *map(str, steps)):
    known = ', '.join(map(str, sorted(steps))) or 'there is none'
    raise UserError(
      f'--checkpoint={checkpoint}: expected best, last, or a step at which all '
      f'runs were evaluated ({known}).'
    )
  shape = layouts.LAYOUTS[layout] if layout else layouts.overview(found.tag)
  tags = [set(of_run) for _, of_run in found.groupby('run').tag]
  columns = [
    column
    for column in shape.columns
    if not column.optional or any(map(column.is_among, tags))
  ]
  cells = _cells(found, columns, checkpoint)
  table = Table(shape, checkpoint, columns, by_model(runs), cells)
  if shape.needs_scores and table.scores.empty:
    tasks = ', '.join(sorted(set(found.task.dropna())))
    raise UserError(
      f'no run has a score of this table ({shape.title}). '
      f'Evaluated tasks: {tasks or "none"}. Leave out --layout to see them.'
    )
  return table


def frame(runs: Sequence[Run], products: bool = False) -> pd.DataFrame:
  """Returns one row for each score of each run, and for each fact about it.

  The facts are `parameters`, `steps_per_second`, `speed_over_t5` (relative to
  the mean of plain T5, if it is among the runs) and, if requested, `products`.
  """
  t5 = [
    run.steps_per_second
    for run in runs
    if run.label in layouts.VANILLA and run.steps_per_second
  ]
  rows = []
  for model, same in by_model(runs).items():
    for run in same:
      about = {'model': model, 'run': run.name}
      for score in run.results:
        tag = f'{score.task.removeprefix(layouts.PREFIX)}/{score.metric}'
        rows.append({**about, **vars(score), 'tag': tag})
      speed = run.steps_per_second
      for fact, value in (
        ('parameters', run.parameters),
        ('products', run.products if products else None),
        ('steps_per_second', speed),
        ('speed_over_t5', speed * len(t5) / sum(t5) if t5 and speed else None),
      ):
        if not pd.isna(value):
          found = {'tag': fact, 'step': 0, 'value': value}
          rows.append({**about, 'split': '', 'unit': '', **found})
  return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _cells(
  every: pd.DataFrame, columns: Sequence[layouts.Column], checkpoint: str
) -> pd.DataFrame:
  """Selects each run's numbers, from one split and checkpoint per column."""
  wanted = pd.DataFrame(
    {'tag': tag, 'name': name, 'column': column.key, 'about': column}
    for column in columns
    for name, tags in column.tags.items()
    for tag in tags
  )
  # Different commands evaluate text and tokens, so their last steps may differ.
  units = every.unit.replace('question', 'example')
  last = every.groupby(['run', units]).step.transform('max')
  found = wanted.merge(every.assign(last=last), on='tag')
  scale = pd.Series([abs(column.scale) for column in found.about], dtype=float)
  found['standard_error'] *= scale.where(found.value.notna())
  found['value'] = [
    x.number(v) for x, v in zip(found.about, found.value, strict=True)
  ]
  if checkpoint == LAST:
    found = found[found.step == found['last']]
  elif checkpoint != BEST:
    found = found[(found.step == int(checkpoint)) | found.task.isna()]
  first = found.split.map(lambda split: _SPLITS.get(split, split))
  firsts = first.groupby([found.run, found.column]).transform('min')
  found = found[first == firsts]
  found = found.drop_duplicates(['run', 'name', 'step'])
  if checkpoint == BEST:
    found = found[_is_best(found)]
  averages = [
    {**about, 'value': average, 'column': column.key, 'name': column.key}
    for (model, run), of_run in found.groupby(['model', 'run'], sort=False)
    for about in [{'model': model, 'run': run, 'step': 0}]
    for column in columns
    if column.over
    for average in [
      column.average(dict(zip(of_run.name, of_run.value, strict=True)))
    ]
    if average is not None
  ]
  return pd.DataFrame(
    [*found.to_dict('records'), *averages],
    columns=[*COLUMNS, 'column', 'name'],
  ).astype(COLUMNS)


def _is_best(found: pd.DataFrame) -> Any:
  """Whether each row is at the best step of its run and column.

  Steps are ranked by the mean of their scores; a step with a missing or
  undefined score ranks last.
  """
  good = [
    v if x.better >= 0 else -v
    for x, v in zip(found.about, found.value, strict=True)
  ]
  sizes = [len(column.tags) for column in found.about]
  steps = found.assign(good=good, size=sizes).groupby(['run', 'column', 'step'])
  whole = steps.good.count() == steps['size'].first()
  quality = steps.good.mean().where(whole, -np.inf)
  best = quality.groupby(['run', 'column']).idxmax()
  return pd.MultiIndex.from_frame(found[quality.index.names]).isin(best)
