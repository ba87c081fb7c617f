"""Makes a table of runs: a row for each model, over its seeds.

Of each column, every run contributes the scores of one checkpoint. Runs that
differ only in their seeds are one model: its numbers have mean and standard
deviation over them.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np
import pandas as pd

from synth_mtf.errors import UserError
from synth_mtf.results import layouts, scores
from synth_mtf.results.layouts import Column, Layout
from synth_mtf.results.runs import Run
from synth_mtf.results.seeds import by_model

LAST, BEST = 'last', 'best'
# The split to take if a task was evaluated on several.
_SPLITS = ('validation', 'test')

Checkpoint = Union[str, int]  # LAST, BEST or a step


@dataclasses.dataclass(frozen=True)
class Table:
  """The numbers of a table.

  Attributes:
    title: what it shows.
    checkpoint: LAST, BEST or a step.
    columns: from left to right.
    models: the runs of each row, by the name of their model.
    cells: a row for each number of each run, `name` being one of
      `Column.names`; `value` is NaN where it is not defined, and what is
      missing has no row. Scores have the columns of `scores.frame`, too.
    numbers: mean, deviation, standard_error and n of each model, by (model,
      name); NaN if a run lacks it.
  """

  title: str
  checkpoint: Checkpoint
  columns: Sequence[Column]
  models: Mapping[str, Sequence[Run]]
  cells: pd.DataFrame
  numbers: pd.DataFrame

  @property
  def scores(self) -> pd.DataFrame:
    """The cells that are scores of a task."""
    return self.cells.dropna(subset='task')


def make(
  runs: Sequence[Run],
  layout: Optional[str] = None,
  checkpoint: str = LAST,
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
  frame = scores.frame(runs)
  chosen = _parsed(checkpoint, frame, runs)
  shape = layouts.LAYOUTS[layout] if layout else layouts.overview(frame.tag)
  columns = [one for one in shape.columns if _is_shown(one, frame, runs)]
  models = by_model(runs)
  cells = pd.DataFrame(
    [
      cell for column in columns for cell in _cells(column, frame, runs, chosen)
    ],
    columns=[*scores.COLUMNS, 'column', 'name'],
  ).astype(
    {'step': 'Int64', 'value': float, 'n': 'Int64', 'standard_error': float}
  )
  cells.loc[cells.value.isna(), 'standard_error'] = np.nan
  owners = {run.name: model for model, same in models.items() for run in same}
  cells['model'] = cells.run.map(owners)
  names = [name for column in columns for name in column.names]
  table = Table(
    shape.title, chosen, columns, models, cells, _numbers(cells, models, names)
  )
  if shape.needs_scores and table.scores.empty:
    raise _nothing_to_show(shape, frame)
  return table


def _parsed(word: str, frame: pd.DataFrame, runs: Sequence[Run]) -> Checkpoint:
  if word in (LAST, BEST):
    return word
  if not word.isdecimal():
    raise UserError(
      f'--checkpoint={word}: expected best, last, or a step such as 1000.'
    )
  for run in runs:
    steps = sorted(set(frame.step[frame.run == run.name]))
    if int(word) not in steps:
      expected = ', '.join(map(str, steps))
      raise UserError(
        f'--checkpoint={word}: {run.name} has not been evaluated at that step'
        + (f'; expected one of {expected}, best, or last.' if steps else '.')
      )
  return int(word)


def _nothing_to_show(shape: Layout, frame: pd.DataFrame) -> UserError:
  tasks = ', '.join(sorted(set(frame.task)))
  return UserError(
    f'no run has a score of this table ({shape.title}). '
    + (
      f'Evaluated tasks: {tasks}. Leave out --layout to see them.'
      if tasks
      else 'None of the runs has been evaluated.'
    )
  )


def _is_shown(column: Column, frame: pd.DataFrame, runs: Sequence[Run]) -> bool:
  if not column.optional:
    return True
  if column.fact:
    return any(column.fact(run, runs) is not None for run in runs)
  of_runs = frame.groupby('run').tag.agg(set)
  return any(
    all(one.tags & tags for one in column.over or [column]) for tags in of_runs
  )


def _cells(
  column: Column,
  frame: pd.DataFrame,
  runs: Sequence[Run],
  checkpoint: Checkpoint,
) -> Iterator[dict[str, Any]]:
  """Yields the numbers of a column, as many as each run has."""
  for run in runs:
    of_run = frame[frame.run == run.name]
    if column.fact:
      value = column.fact(run, runs)
      found = [] if value is None else [{'value': value}]
    elif column.over:
      found = _average(
        [_at_checkpoint(one, of_run, checkpoint) for one in column.over],
        column.over,
      )
    else:
      found = _at_checkpoint(column, of_run, checkpoint)
    for number in found:
      yield {
        'name': column.key,
        'run': run.name,
        'column': column.key,
        **number,
      }


def _average(
  tasks: Sequence[Sequence[Mapping[str, Any]]], columns: Sequence[Column]
) -> list[dict[str, Any]]:
  """T5's average: over the metrics of each task, then over tasks.

  A score that is not defined, such as the correlation of answers that are all
  alike, counts as 0; one that is missing leaves no average.
  """
  if any(len(t) < len(c.measures) for t, c in zip(tasks, columns)):
    return []
  means = [np.mean(np.nan_to_num([one['value'] for one in t])) for t in tasks]
  return [{'value': np.mean(means)}]


def _at_checkpoint(
  column: Column, of_run: pd.DataFrame, checkpoint: Checkpoint
) -> list[dict[str, Any]]:
  """The scores of a run: of one split, at one checkpoint."""
  found = of_run[of_run.tag.isin(column.tags)]
  if found.empty:
    return []
  found = found[found.split == min(found.split, key=_preference)]
  by_step = {
    step: _of_measures(column, at_step)
    for step, at_step in found.groupby('step')
  }
  if checkpoint == BEST:
    checkpoint = max(by_step, key=lambda s: _quality(column, by_step[s]))
  elif checkpoint == LAST:
    # Decoded texts and single tokens are evaluated by different commands.
    checkpoint = of_run.step[of_run.unit.isin(found.unit)].max()
  return by_step.get(checkpoint, [])


def _of_measures(column: Column, at_step: pd.DataFrame) -> list[dict[str, Any]]:
  rows = {row['tag']: row for row in at_step.to_dict('records')}
  found = []
  for name, measure in zip(column.names, column.measures):
    row = next((rows[tag] for tag in measure.tags if tag in rows), None)
    if row is not None:
      slope = abs(measure.slope(row['value']))
      found.append(
        {
          **row,
          'name': name,
          'value': measure.of(row['value']),
          'standard_error': row['standard_error'] * slope,
        }
      )
  return found


def _quality(column: Column, found: Sequence[Mapping[str, Any]]) -> float:
  """The mean of the scores at a step; -inf if one is missing or undefined."""
  values = [
    one['value'] if measure.higher_is_better else -one['value']
    for one, measure in zip(found, column.measures)
  ]
  mean = np.mean(values) if len(found) == len(column.measures) else np.nan
  return -np.inf if np.isnan(mean) else float(mean)


def _preference(split: str) -> tuple[int, str]:
  known = _SPLITS.index(split) if split in _SPLITS else len(_SPLITS)
  return known, split


def _numbers(
  cells: pd.DataFrame,
  models: Mapping[str, Sequence[Run]],
  names: Sequence[str],
) -> pd.DataFrame:
  """Mean and spread over the runs of each model."""
  squared = cells.assign(variance=cells.standard_error**2)
  groups = squared.groupby(['model', 'name'])
  found = pd.DataFrame(
    {
      'mean': groups.value.mean(),
      'deviation': groups.value.std(),
      # Of a typical run, over the examples.
      'standard_error': np.sqrt(groups.variance.mean()),
      'n': groups.n.max(),
      'values': groups.value.count(),
      'errors': groups.variance.count(),
      'counts': groups.n.count(),
      'different_n': groups.n.nunique(),
    }
  ).reindex(
    pd.MultiIndex.from_product([models, names], names=['model', 'name'])
  )
  runs = found.index.get_level_values('model').map(
    {model: len(same) for model, same in models.items()}
  )
  found.loc[found['values'] != runs, ['mean', 'deviation']] = np.nan
  found.loc[found.errors != runs, 'standard_error'] = np.nan
  found.loc[(found.counts != runs) | (found.different_n != 1), 'n'] = pd.NA
  return found[['mean', 'deviation', 'standard_error', 'n']]
