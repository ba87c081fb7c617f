"""Makes tables of runs, with one row per model.

Each run contributes the scores of one checkpoint to each column. Runs that
differ only in their seeds belong to one model, whose row shows their mean and
standard deviation.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.results import layouts
from synth_mtf.results.runs import Run, by_model

LAST, BEST = 'last', 'best'
# If a task was evaluated on several splits at a checkpoint, the first in
# alphabetical order is used, but these two precede all others.
_SPLITS = {'validation': '', 'test': ' '}

# Of a data frame of numbers, and their types.
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
  'reason': object,  # why `value` is undefined, if known
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

  @functools.cached_property
  def scores(self) -> pd.DataFrame:
    """The cells that hold task scores."""
    return self.cells.dropna(subset='task')

  @functools.cached_property
  def scores_by_column(self) -> Mapping[str, pd.DataFrame]:
    """The scores of each column that has any, by the column's key."""
    # A search of all scores for each column would take minutes for thousands.
    return dict(iter(self.scores.groupby('column')))

  @property
  def is_generated(self) -> bool:
    """Whether a score was measured on generated samples."""
    return bool((self.scores.data == paths.GENERATED).any())

  @functools.cached_property
  def numbers(self) -> pd.DataFrame:
    """Mean, deviation, standard_error and n, by (model, name).

    They are NaN if a run of the model lacks the number.
    """
    keys = []
    for model, runs in self.models.items():
      for run in runs:
        keys += [(model, run.name, name) for name in self.named]
    index = pd.MultiIndex.from_tuples(keys, names=['model', 'run', 'name'])
    cells = self.cells.set_index(index.names).reindex(index)
    groups = cells.groupby(['model', 'name'], sort=False)
    return pd.DataFrame(
      {
        'mean': groups.value.agg(lambda x: x.mean(skipna=False)),
        'deviation': groups.value.agg(lambda x: x.std(skipna=False)),
        'standard_error': groups.standard_error.agg(_root_mean_square),
        'n': groups.n.agg(_common),
      }
    )


def _root_mean_square(values: pd.Series) -> float:
  return (values**2).mean(skipna=False) ** 0.5


def _common(values: pd.Series) -> Any:
  """Returns the value that all have, else NA."""
  return values.iloc[0] if values.nunique(dropna=False) == 1 else pd.NA


def make(
  runs: Sequence[Run], layout: str | None = None, checkpoint: str = LAST
) -> Table:
  """Makes a table of runs.

  Args:
    runs: at least one.
    layout: a key of `layouts.LAYOUTS`; None shows what the runs have, with the
      mean log perplexity of a mixture's tasks, and `layouts.ALL` all they have.
    checkpoint: 'last' for the last one evaluated, 'best' for the one with the
      best mean over a task's metrics, or a step.

  Raises:
    UserError: no run has a score in the layout, or a run was not evaluated at
      the step.
  """
  numbers = frame(runs, products=layout == 'speed')
  check_checkpoint(checkpoint, runs)
  if layout in (None, layouts.ALL):
    shape = layouts.overview(numbers.tag, each=layout == layouts.ALL)
  else:
    shape = layouts.LAYOUTS[layout]
  columns = _columns(shape, numbers)
  cells = _cells(numbers, [*columns, *shape.hidden], checkpoint)
  cells = cells[~cells.column.isin([column.key for column in shape.hidden])]
  table = Table(shape, checkpoint, columns, by_model(runs), cells)
  if shape.needs_scores and table.scores.empty:
    tasks = ', '.join(sorted(set(numbers.task.dropna())))
    raise UserError(
      f'no run has a score of this table ({shape.title}). '
      f'Evaluated tasks: {tasks or "none"}. Leave out --layout to see them.'
    )
  return table


def check_checkpoint(checkpoint: str, runs: Sequence[Run]) -> None:
  """Raises a UserError unless it is LAST, BEST or a step of all runs."""
  steps = set.intersection(
    *({result.step for result in run.results} for run in runs)
  )
  if checkpoint not in (LAST, BEST, *map(str, steps)):
    known = ', '.join(map(str, sorted(steps))) or 'there is none'
    raise UserError(
      f'--checkpoint={checkpoint}: expected best, last, or a step at which all '
      f'runs were evaluated ({known}).'
    )


def _columns(
  layout: layouts.Layout, numbers: pd.DataFrame
) -> list[layouts.Column]:
  """Returns a layout's columns, without the optional ones that no run has."""
  tags_of_runs = [set(tags) for _, tags in numbers.groupby('run').tag]
  columns = []
  for column in layout.columns:
    is_known = any(column.is_among(tags) for tags in tags_of_runs)
    if is_known or not column.optional:
      columns.append(column)
  return columns


def frame(runs: Sequence[Run], products: bool = False) -> pd.DataFrame:
  """Returns one row for each score of each run, and for each fact about it.

  The facts are `parameters`, `steps_per_second`, `speed_over_t5` (relative to
  the mean of plain T5, if it is among the runs) and, if requested, `products`.
  """
  speeds_of_t5 = [
    run.steps_per_second
    for run in runs
    if run.label in layouts.VANILLA and run.steps_per_second
  ]
  rows = []
  for model, same in by_model(runs).items():
    for run in same:
      for number in (*_scores(run), *_facts(run, speeds_of_t5, products)):
        rows.append({'model': model, 'run': run.name, **number})
  return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _scores(run: Run) -> Iterator[dict[str, Any]]:
  """Yields the row of each score, without model and run."""
  for score in run.results:
    task = score.task.removeprefix(layouts.PREFIX)
    yield {**vars(score), 'tag': f'{task}/{score.metric}'}


def _facts(
  run: Run, speeds_of_t5: Sequence[float], products: bool
) -> Iterator[dict[str, Any]]:
  """Yields the row of each fact that is known, without model and run."""
  speed = run.steps_per_second
  facts: dict[str, float | None] = {'parameters': run.parameters}
  if products:
    facts['products'] = run.products
  facts['steps_per_second'] = speed
  if speed and speeds_of_t5:
    facts['speed_over_t5'] = speed * len(speeds_of_t5) / sum(speeds_of_t5)
  for tag, value in facts.items():
    if not pd.isna(value):
      yield {'tag': tag, 'step': 0, 'value': value, 'split': '', 'unit': ''}


def _cells(
  numbers: pd.DataFrame, columns: Sequence[layouts.Column], checkpoint: str
) -> pd.DataFrame:
  """Selects each run's numbers, from one split and checkpoint per column."""
  # Different commands evaluate text and tokens, so their last steps may differ.
  units = numbers.unit.replace('question', 'example')
  last = numbers.groupby(['run', units]).step.transform('max')
  cells = _tags(columns).merge(numbers.assign(last=last), on='tag')
  _scale(cells)
  if checkpoint == LAST:
    cells = cells[cells.step == cells['last']]
  elif checkpoint != BEST:
    cells = cells[(cells.step == int(checkpoint)) | cells.task.isna()]
  cells = _of_first_split(cells)
  # Of several tags of a number, the first that the run has is used.
  cells = cells.drop_duplicates(['run', 'name', 'step'])
  if checkpoint == BEST:
    cells = cells[_is_best(cells)]
  return pd.DataFrame(
    [*cells.to_dict('records'), *_averages(cells, columns)],
    columns=[*COLUMNS, 'column', 'name'],
  ).astype(COLUMNS)


def _tags(columns: Sequence[layouts.Column]) -> pd.DataFrame:
  """Returns the tags of each number, with its name and column."""
  rows = []
  for column in columns:
    for name, tags in column.tags.items():
      for tag in tags:
        rows.append((tag, name, column.key, column))
  return pd.DataFrame(rows, columns=['tag', 'name', 'column', 'definition'])


def _scale(cells: pd.DataFrame) -> None:
  """Converts scores and standard errors to the numbers that are shown."""
  definitions = cells.definition
  scales = pd.Series([abs(column.scale) for column in definitions], dtype=float)
  cells['standard_error'] *= scales.where(cells.value.notna())
  cells['value'] = [
    column.number(value)
    for column, value in zip(definitions, cells.value, strict=True)
  ]


def _of_first_split(cells: pd.DataFrame) -> pd.DataFrame:
  """Keeps the first split in the order of `_SPLITS` for each run and column."""
  rank = cells.split.map(lambda split: _SPLITS.get(split, split))
  first = rank.groupby([cells.run, cells.column]).transform('min')
  return cells[rank == first]


def _averages(
  cells: pd.DataFrame, columns: Sequence[layouts.Column]
) -> Iterator[dict[str, Any]]:
  """Yields a cell for each run and column that averages others."""
  for (model, run), of_run in cells.groupby(['model', 'run'], sort=False):
    numbers = dict(zip(of_run.name, of_run.value, strict=True))
    for column in columns:
      average = column.average(numbers) if column.over else None
      if average is not None:
        yield {
          'model': model,
          'run': run,
          'step': 0,
          'value': average,
          'column': column.key,
          'name': column.key,
        }


def _is_best(cells: pd.DataFrame) -> Any:
  """Whether each row is at the best step of its run and column.

  Steps are ranked by the mean of their scores; a step with a missing or
  undefined score ranks last.
  """
  qualities = [
    value if column.better >= 0 else -value
    for column, value in zip(cells.definition, cells.value, strict=True)
  ]
  sizes = [len(column.tags) for column in cells.definition]
  cells = cells.assign(quality=qualities, size=sizes)
  keys = ['run', 'column']
  steps = cells.groupby([*keys, 'step'])
  is_complete = steps.quality.count() == steps['size'].first()
  quality = steps.quality.mean().where(is_complete, -np.inf)
  best = quality.groupby(keys).idxmax()
  return pd.MultiIndex.from_frame(cells[[*keys, 'step']]).isin(best)
