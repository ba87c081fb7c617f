"""Makes a table of runs: a row for each model, over its seeds.

Of each column, every run contributes the scores of one checkpoint. Runs that
differ only in their seeds are one model: its numbers have mean and standard
deviation over them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import pandas as pd

from synth_mtf.errors import UserError
from synth_mtf.results import layouts, scores
from synth_mtf.results.layouts import Column
from synth_mtf.results.runs import Run

LAST, BEST = 'last', 'best'
# If a task was evaluated on several splits, the first in this order counts.
_SPLITS = {'validation': '', 'test': ' '}


@dataclasses.dataclass(frozen=True)
class Table:
  """The numbers of a table.

  Attributes:
    title: what it shows.
    checkpoint: LAST, BEST or a step.
    columns: from left to right.
    models: the runs of each row, by the name of their model.
    cells: a row for each number of each run, as in `scores.frame`, with the key
      of its `column` and its `name` in `Column.named`; `value` is NaN where
      it is not defined, and what is missing has no row.
    numbers: mean, deviation, standard_error and n of each model, by (model,
      name); NaN if a run lacks it.
  """

  title: str
  checkpoint: str
  columns: Sequence[Column]
  models: Mapping[str, Sequence[Run]]
  cells: pd.DataFrame
  numbers: pd.DataFrame

  @property
  def scores(self) -> pd.DataFrame:
    """The cells that are scores of a task."""
    return self.cells.dropna(subset='task')


def make(
  runs: Sequence[Run], layout: Optional[str] = None, checkpoint: str = LAST
) -> Table:
  """Puts runs into a table.

  Args:
    runs: at least one.
    layout: a key of `layouts.LAYOUTS`; None shows whatever the runs have.
    checkpoint: 'last', the last that was evaluated; 'best', for each task that
      with the best mean of its metrics; or a step.

  Raises:
    UserError: no run has what the layout shows, or one was not evaluated at the
      step.
  """
  frame = scores.frame(runs, products=layout == 'speed')
  _check(checkpoint, frame, runs)
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
  table = Table(shape.title, checkpoint, columns, models, cells, numbers)
  if shape.needs_scores and table.scores.empty:
    tasks = ', '.join(sorted(set(frame.task.dropna())))
    raise UserError(
      f'no run has a score of this table ({shape.title}). '
      f'Evaluated tasks: {tasks or "none"}. Leave out --layout to see them.'
    )
  return table


def _check(checkpoint: str, frame: pd.DataFrame, runs: Sequence[Run]) -> None:
  if checkpoint in (LAST, BEST):
    return
  if not checkpoint.isdecimal():
    raise UserError(
      f'--checkpoint={checkpoint}: expected best, last, or a step such as 1000.'
    )
  for run in runs:
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
  """The numbers that each run has: of one split, at one checkpoint."""
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
  # Decoded texts and single tokens are evaluated by different commands.
  last = frame.groupby(['run', 'unit']).step.transform('max')
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
  averages = []
  for (model, run), of_run in found.groupby(['model', 'run'], sort=False):
    for column in columns:
      tasks = [of_run.value[of_run.column == one.key] for one in column.over]
      if tasks and all(
        len(values) == len(one.measures)
        for values, one in zip(tasks, column.over)
      ):
        # T5's rule: what is not defined, such as the correlation of answers
        # that are all alike, counts as 0.
        average = np.mean([np.mean(np.nan_to_num(values)) for values in tasks])
        key = {'column': column.key, 'name': column.key}
        about = {'model': model, 'run': run, 'step': 0}
        averages.append({**about, **key, 'value': average})
  return pd.DataFrame(
    [*found.to_dict('records'), *averages],
    columns=[*scores.COLUMNS, 'column', 'name'],
  ).astype(scores.DTYPES)


def _is_best(found: pd.DataFrame) -> Any:
  """Whether each row is of the best step of its run and column.

  A step is as good as the mean of its scores, or no good if one is missing or
  undefined.
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
  """Mean and spread over the runs of each model, each of which must count."""
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
      # Of a typical run, over the examples.
      'standard_error': groups.standard_error.agg(
        lambda x: (x**2).mean(skipna=False) ** 0.5
      ),
      'n': groups.n.agg(
        lambda n: n.iloc[0] if n.nunique(dropna=False) == 1 else pd.NA
      ),
    }
  )
