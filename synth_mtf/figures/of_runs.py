"""Plots runs: learning curves, scores against costs, and alpha.

Requires matplotlib (extra `[plot]`). `style` alone imports it and says if it is
missing.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pandas as pd

from synth_mtf.errors import UserError, nearest
from synth_mtf.figures import style
from synth_mtf.results import layouts, tables
from synth_mtf.results.runs import Run, by_model

_TRAINING_LOSS = 'training loss'
# That of runs on a TPU, by T5's own command, or by earlier releases.
_HOST_LOSS = "T5's training loss"
_STEP = 'training step'
_LOG_PERPLEXITY = 'log perplexity'
_UNITS = {
  _TRAINING_LOSS: 'nats per token',
  _HOST_LOSS: 'nats per position',
  _LOG_PERPLEXITY: 'nats per token',
  **dict.fromkeys(layouts.PER_TOKEN, 'fraction'),
}
# Columns of tables, and how their axes are called.
_COSTS = {'Steps/s': 'steps per second', 'Params': 'parameters (millions)'}
_STACKS = ('encoder', 'decoder', 'cross')
_MOST_PANELS = 12  # of a figure
_MOST_CURVES = 300  # in all figures


def curves(
  runs: Sequence[Run], tasks: Collection[str] = ()
) -> list[style.Figure]:
  """Plots the loss and each metric in its own panel, with one line per model.

  If there are more panels than a figure takes, the averages of the table
  replace the tasks that they contain. A score that is always 0 has no panel.

  A line is the mean over a model's seeds, inside a band of one standard
  deviation. Error bars are the scores' standard errors over examples. Losses
  that span a factor of ten get a logarithmic axis; otherwise, the initial loss
  would flatten the differences at the end. Markers show the first and the last
  step of a stage, and vertical lines where a later stage begins. Splits other
  than validation have separate panels.

  Args:
    runs: at least one.
    tasks: shows all panels of these, such as 'glue_cola_v002', and no other
      task's.

  Returns:
    Figures of at most twelve panels each.

  Raises:
    UserError: no curve has two points, no run has a score of a task, or there
      are too many curves.
  """
  points = _points(runs)
  if tasks:
    points = _of_tasks(points, tasks)
  elif len(_panels(points)) > _MOST_PANELS:
    points = _averaged_points(points)
  names = _panels(points)
  if not names:
    raise UserError(
      'no curve has two points: there are neither event files of training nor '
      'evaluations at several steps in ' + ', '.join(run.name for run in runs)
    )
  if len(names) > _MOST_CURVES:
    raise UserError(
      f'{len(names):,} tasks, splits and metrics have curves, and figures have '
      f'room for {_MOST_CURVES}: choose some with --tasks, or see the scores '
      'in `synth-mtf table`'
    )
  models = list(by_model(runs))
  figures = []
  for start in range(0, len(names), _MOST_PANELS):
    page = names[start : start + _MOST_PANELS]
    figures.append(_page_of_curves(page, points, models))
  return figures


def _panels(points: pd.DataFrame) -> list[str]:
  """Returns the panels in which a curve has two points, without those of 0."""
  lengths = points.groupby(['panel', 'run']).step.nunique()
  lines = [n for n in points.panel.unique() if (lengths[n] > 1).any()]
  is_zero = points.value.eq(0).groupby(points.panel).all()
  return [name for name in lines if not is_zero[name]] or lines


def _of_tasks(points: pd.DataFrame, tasks: Collection[str]) -> pd.DataFrame:
  """Keeps the points of losses and tasks; our prefix may be left out."""
  names = points.task.str.removeprefix(layouts.PREFIX)
  wanted = [task.removeprefix(layouts.PREFIX) for task in tasks]
  known = sorted(names.dropna().unique())
  for task in wanted:
    if task not in known:
      raise UserError(
        f'--tasks: no run has a score of {task!r}{nearest(task, known)}; '
        f'evaluated tasks: {", ".join(known) or "none"}'
      )
  return points[names.isna() | names.isin(wanted)]


def _averaged_points(points: pd.DataFrame) -> pd.DataFrame:
  """Replaces tasks by the averages of the table that contain them.

  An average without two points in a run replaces nothing.
  """
  scores = points.dropna(subset='task')
  for column in layouts.overview(scores.tag).columns:
    averages = _averages(column, scores) if column.over else scores[:0]
    if _panels(averages):
      parts = {tag.rpartition('/')[0] for tag in column.all_tags}
      names = points.task.str.removeprefix(layouts.PREFIX)
      is_per_token = points.metric.isin(layouts.PER_TOKEN)
      of_tokens = any(
        tag.endswith(layouts.LOG_PERPLEXITY) for tag in column.all_tags
      )
      is_part = names.isin(parts) & (is_per_token == of_tokens)
      points = pd.concat([points[~is_part], averages])
  return points


def _averages(column: layouts.Column, scores: pd.DataFrame) -> pd.DataFrame:
  """Returns the points of a column that averages others."""
  rows = []
  keys = ['model', 'run', 'split', 'step']
  for (model, run, split, step), same in scores.groupby(keys, sort=False):
    known = dict(zip(same.tag, same.raw, strict=True))
    numbers = {
      name: part.number(known[tag])
      for part in column.over
      for name, tags in part.tags.items()
      for tag in tags
      if tag in known
    }
    rows.append(
      {
        'panel': column.header + _shown_split(split),
        'model': model,
        'run': run,
        'stage': '',
        'step': step,
        'value': column.average(numbers),
      }
    )
  frame = pd.DataFrame(rows, columns=[*scores.columns])
  return frame.dropna(subset='value')


def _shown_split(split: str) -> str:
  return '' if split == 'validation' else f' ({split})'


def _page_of_curves(
  names: Sequence[str], points: pd.DataFrame, models: Sequence[str]
) -> style.Figure:
  """Draws some panels of `curves`."""
  columns = min(3, len(names))
  rows = math.ceil(len(names) / columns)
  with style.panels(rows, columns, height=1.8) as (figure, grid):
    used, unused = grid.flat[: len(names)], grid.flat[len(names) :]
    for panel, name in zip(used, names, strict=True):
      _draw_curves(panel, name, points[points.panel == name], models)
    for panel in unused:
      panel.set_axis_off()
  return figure


def _draw_curves(
  panel: style.Axes, name: str, points: pd.DataFrame, models: Sequence[str]
) -> None:
  """Fills a panel of `curves`."""
  for (model, _), curve in points.groupby(['model', 'stage'], sort=False):
    _draw_band(panel, curve, model, style.look(models.index(model)))
  stages = points[points.stage != ''].groupby('stage')
  starts = stages.step.min().sort_values()
  for number, (stage, step) in enumerate(starts.items()):
    is_later = number > 0
    panel.axvline(step, color='0.6', linestyle=':', visible=is_later)
    panel.annotate(  # below the curves, which begin at their highest
      stage,
      (step, 0.03),
      (2, 0),
      xycoords=('data', 'axes fraction'),
      textcoords='offset points',
      size=6,
    )
  is_loss = name.endswith((_TRAINING_LOSS, _HOST_LOSS, _LOG_PERPLEXITY))
  if is_loss and 0 < 10 * points.value.min() <= points.value.max():
    panel.set_yscale('log', subs=[2, 5])
    panel.yaxis.set(major_formatter='{x:g}', minor_formatter='{x:g}')
  metric = name.rpartition('\n')[2]
  unit = _UNITS.get(metric, 'score')
  panel.set(title=name, xlabel=_STEP, ylabel=unit)


def _points(runs: Sequence[Run]) -> pd.DataFrame:
  """Returns the points of all curves, each with its panel, model, run, step."""
  columns = ['panel', 'model', 'run', 'stage', 'step', 'value']
  losses = pd.DataFrame(_losses(runs), columns=columns).dropna(subset='value')
  scores = tables.frame(runs).dropna(subset=['task', 'value'])
  is_perplexity = scores.metric == layouts.LOG_PERPLEXITY
  metrics = scores.metric.mask(is_perplexity, _LOG_PERPLEXITY)
  scores = scores.assign(
    panel=scores.task + scores.split.map(_shown_split) + '\n' + metrics,
    stage='',
    raw=scores.value,
    value=scores.value.mask(is_perplexity, -scores.value),
  )
  # pandas warns of empty parts.
  parts = [part for part in (losses, scores) if len(part)]
  points = pd.concat(parts) if parts else losses
  more = ['standard_error', 'task', 'tag', 'metric', 'split', 'raw']
  return points.reindex(columns=[*columns, *more])


def _losses(runs: Sequence[Run]) -> Iterator[tuple[Any, ...]]:
  """Yields the points of the training losses."""
  for model, same in by_model(runs).items():
    for run in same:
      for panel, curves in (
        (_TRAINING_LOSS, run.losses),
        (_HOST_LOSS, run.host_losses),
      ):
        for stage, curve in curves.items():
          for step, value in curve.items():
            yield panel, model, run.name, stage, step, value


def _draw_band(
  panel: style.Axes, curve: pd.DataFrame, label: str, look: style.Look
) -> None:
  """Draws mean and standard deviation at the steps that all runs have."""
  by_run = curve.pivot_table('value', 'step', 'run', aggfunc='last')
  if curve.panel.iloc[0] in (_TRAINING_LOSS, _HOST_LOSS):
    # The host logs the loss at different steps in each run, so interpolate.
    steps = by_run[curve.run.iloc[0]].dropna().index
    by_run = by_run.interpolate('index', limit_area='inside').loc[steps]
  by_run = by_run.dropna()
  mean = by_run.mean(axis=1)
  deviation = by_run.std(axis=1)
  variances = curve.standard_error.pow(2).groupby(curve.step).mean()
  errors = variances[mean.index] ** 0.5
  marked = [0, -1] if len(mean) >= 10 else None
  panel.plot(mean.index, mean, label=label, markevery=marked, **look._asdict())
  if errors.notna().any():
    panel.errorbar(
      mean.index,
      mean,
      errors,
      fmt='none',
      ecolor=look.color,
      elinewidth=0.8,
      capsize=2,
    )
  if deviation.any():
    panel.fill_between(
      mean.index,
      mean - deviation,
      mean + deviation,
      color=look.color,
      alpha=0.2,
      linewidth=0,
    )


def scores(runs: Sequence[Run]) -> style.Figure:
  """Plots each model's score against steps per second and against parameters.

  The score is the average (`Column.average`) over all columns of the table at
  the last evaluated step; if no run has scores, over those of log perplexity.
  Error bars show one standard deviation over seeds.

  Raises:
    UserError: no run was evaluated, or no average is defined.
  """
  table = tables.make(runs, layouts.ALL)
  if table.scores.empty:
    raise UserError(
      'no evaluation is in ' + ', '.join(run.name for run in runs)
    )
  name, averaged = _averaged(table)
  points = _costs_and_averages(table, averaged)
  if points.score.isna().all():
    raise UserError(
      'in every run, one of the scores to average is missing or not defined, '
      'such as a correlation if all answers are alike, or one reads as NaN'
    )
  label = f'{name} at the last step'
  if len(averaged) > 1:
    label += f' (mean of {len(averaged)} tasks)'
  with style.panels(1, 2, height=2.6, sharey=True) as (figure, (row,)):
    for panel, (cost, cost_name) in zip(row, _COSTS.items(), strict=True):
      for number, model in enumerate(table.models):
        pairs = points.loc[points.model == model, [cost, 'score']].dropna()
        if not pairs.empty:
          _draw_mean(panel, pairs, model, style.look(number))
      panel.set_xlabel(cost_name)
      panel.margins(0.2)
    row[0].set_ylabel(label)
  return figure


def without_curves(runs: Sequence[Run]) -> list[str]:
  """Returns a line for each run that `curves` has no point of."""
  drawn = set(_points(runs).run)
  lines = []
  for run in runs:
    if run.name not in drawn:
      why = 'it has neither event files of training nor evaluations'
      if any(run.losses.values()) or any(run.host_losses.values()):
        why = 'all its losses are NaN'
      lines.append(f'No curve of {run.label}, {run.name}: {why}')
  return lines


def without_scores(runs: Sequence[Run]) -> list[str]:
  """Returns a line for each run that a panel of `scores` lacks, and why."""
  table = tables.make(runs, layouts.ALL)
  _, averaged = _averaged(table)
  points = _costs_and_averages(table, averaged).set_index('run')
  cells = table.cells.dropna(subset='value')
  lines = []
  for run in runs:
    known = set(cells.name[cells.run == run.name])
    lacking = [c.key for c in averaged if not known.issuperset(c.tags)]
    unknown = [c for c in _COSTS if run.name in points.index and c not in known]
    if lacking:
      why = f'a score is missing or not defined ({", ".join(lacking)})'
    elif unknown:
      names = ' and '.join(_COSTS[cost] for cost in unknown)
      why = f'one panel lacks it, since its {names} cannot be read'
    else:
      continue
    lines.append(f'No point of {run.label}, {run.name}: {why}')
  return lines


def _averaged(table: tables.Table) -> tuple[str, list[layouts.Column]]:
  """Returns what `scores` averages: its name, and the columns.

  They are those in which higher is better; without any, those of other metrics
  than log perplexity, or else of log perplexity.
  """
  columns = [c for c in table.columns if c.key in table.scores_by_column]
  metrics = table.scores.groupby('column').metric.first()
  others = [c for c in columns if metrics[c.key] != layouts.LOG_PERPLEXITY]
  higher = [c for c in columns if c.better >= 0]
  name = 'score' if others else _LOG_PERPLEXITY
  return name, higher or others or columns


def _costs_and_averages(
  table: tables.Table, averaged: Sequence[layouts.Column]
) -> pd.DataFrame:
  """Returns a row per run: model, run, the numbers of `_COSTS` and score."""
  keys = ['model', 'run']
  wide = table.cells.pivot(index=keys, columns='name', values='value')
  points = wide.reindex(columns=list(_COSTS)).reset_index()
  points['Params'] /= 1e6
  overall = layouts.Column('', '', {}, averaged)
  points['score'] = [
    overall.average(dict(zip(cells.name, cells.value, strict=True)))
    for _, cells in table.cells.groupby(keys)
  ]
  return points


def _draw_mean(
  panel: style.Axes, pairs: pd.DataFrame, label: str, look: style.Look
) -> None:
  """Draws the mean of points, with deviations where there are several."""
  x, y = pairs.mean()
  # A bar of length 0 would be drawn as a mark.
  x_deviation, y_deviation = (
    deviation if deviation > 0 else None for deviation in pairs.std()
  )
  panel.errorbar(
    x,
    y,
    y_deviation,
    x_deviation,
    label=label,
    color=look.color,
    marker=look.marker,
    linestyle='none',
    linewidth=0.8,
    capsize=2,
  )


def alpha(
  label: str, alphas: pd.DataFrame, layers: Sequence[int] | None = None
) -> style.Figure:
  """Plots the weight of each function in each head over training.

  Each colour is a function; thin lines are heads, thick lines layer means.

  Args:
    label: name of the model, shown above the legend.
    alphas: as returned by `alphas.frame`.
    layers: counted from 1; the default is that of `style.chosen`.
  """
  stacks = [stack for stack in _STACKS if (alphas['stack'] == stack).any()]
  shown = style.chosen(layers, alphas.layer.max())
  letters = list(alphas.function.unique())
  with style.panels(
    len(stacks), len(shown), legend_title=label, sharex=True, sharey=True
  ) as (figure, grid):
    for row, stack in zip(grid, stacks, strict=True):
      for panel, layer in zip(row, shown, strict=True):
        panel.set(title=f'{stack}, layer {layer}', ylim=(0, 1), xlabel=_STEP)
        is_here = (alphas['stack'] == stack) & (alphas.layer == layer)
        _draw_alpha(panel, alphas[is_here], letters)
      row[0].set_ylabel('α')
  return figure


def _draw_alpha(
  panel: style.Axes, alphas: pd.DataFrame, letters: Sequence[str]
) -> None:
  """Draws the alphas of a layer; `letters` gives each function its colour."""
  for letter, of_letter in alphas.groupby('function', sort=False):
    heads = of_letter.pivot(index='step', columns='head', values='value')
    look = style.look(letters.index(letter))
    if len(heads) > 1:
      look = look._replace(marker='')  # only a single step needs one
    panel.plot(
      heads.index,
      heads.to_numpy(),
      **{**look._asdict(), 'alpha': 0.35, 'linewidth': 0.6},
    )
    panel.plot(heads.index, heads.mean(axis=1), label=letter, **look._asdict())
