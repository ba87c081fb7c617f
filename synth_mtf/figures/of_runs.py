"""Plots runs: learning curves, scores against costs, and alpha.

Requires matplotlib (extra `[plot]`). `style` alone imports it and says if it is
missing.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from synth_mtf.errors import UserError
from synth_mtf.figures import style
from synth_mtf.results import layouts, tables
from synth_mtf.results.runs import Run, by_model

_TRAINING_LOSS = 'training loss'
_STEP = 'training step'
_UNITS = {
  _TRAINING_LOSS: 'nats per position',
  'log perplexity': 'nats per token',
  **dict.fromkeys(layouts.PER_TOKEN, 'fraction'),
}
_STACKS = ('encoder', 'decoder', 'cross')


def curves(runs: Sequence[Run]) -> style.Figure:
  """Plots the loss and each metric in its own panel, with one line per model.

  A line is the mean over a model's seeds, inside a band of one standard
  deviation. Error bars are the scores' standard errors over examples. Losses
  that span a factor of ten get a logarithmic axis; otherwise, the initial loss
  would flatten the differences at the end. Markers show the first and the last
  step of a stage, and vertical lines where a later stage begins. Splits other
  than validation have panels of their own.

  Raises:
    UserError: no curve has two points.
  """
  points = _points(runs)
  lengths = points.groupby(['panel', 'run']).step.nunique()
  names = [n for n in points.panel.unique() if (lengths[n] > 1).any()]
  if not names:
    raise UserError(
      'no curve has two points: there are neither event files of training nor '
      'evaluations at several steps in ' + ', '.join(run.name for run in runs)
    )
  columns = min(3, len(names))
  models = list(by_model(runs))

  def fill(axes: style.Panels) -> None:
    for panel, name in zip(np.ravel(axes), names, strict=False):
      here = points[points.panel == name]
      for (model, _), curve in here.groupby(['model', 'stage'], sort=False):
        _draw_band(panel, curve, model, style.look(models.index(model)))
      begins = here[here.stage != ''].groupby('stage').step.min().sort_values()
      for number, (stage, step) in enumerate(begins.items()):
        panel.axvline(step, color='0.6', linestyle=':', visible=number > 0)
        panel.annotate(
          stage, (step, 1), xycoords=('data', 'axes fraction'), va='top', size=6
        )
      is_loss = name.endswith((_TRAINING_LOSS, 'log perplexity'))
      if is_loss and 0 < 10 * here.value.min() <= here.value.max():
        panel.set_yscale('log', subs=[2, 5])
        panel.yaxis.set(major_formatter='{x:g}', minor_formatter='{x:g}')
      unit = _UNITS.get(name.rpartition('\n')[2], 'score')
      panel.set(title=name, xlabel=_STEP, ylabel=unit)
    for panel in np.ravel(axes)[len(names) :]:
      panel.set_axis_off()

  return style.panels(-(-len(names) // columns), columns, fill, height=1.8)


def _points(runs: Sequence[Run]) -> pd.DataFrame:
  """Returns the points of all curves, each with its panel, model, run, step."""
  columns = ['panel', 'model', 'run', 'stage', 'step', 'value']
  rows = [
    (_TRAINING_LOSS, model, run.name, stage, step, value)
    for model, same in by_model(runs).items()
    for run in same
    for stage, curve in run.losses.items()
    for step, value in curve.items()
  ]
  losses = pd.DataFrame(rows, columns=columns)
  scores = tables.frame(runs).dropna(subset=['task', 'value'])
  is_perplexity = scores.metric == layouts.LOG_PERPLEXITY
  metrics = scores.metric.mask(is_perplexity, 'log perplexity')
  splits = (' (' + scores.split + ')').replace(' (validation)', '')
  scores = scores.assign(
    panel=scores.task + splits + '\n' + metrics,
    stage='',
    value=scores.value.mask(is_perplexity, -scores.value),
  )
  parts = [part for part in (losses, scores) if len(part)] or [losses]
  return pd.concat(parts).reindex(columns=[*columns, 'standard_error'])


def _draw_band(
  panel: style.Axes, curve: pd.DataFrame, label: str, look: style.Look
) -> None:
  """Draws mean and standard deviation at the steps that all runs have."""
  by_run = curve.pivot_table('value', 'step', 'run', aggfunc='last')
  if curve.panel.iloc[0] == _TRAINING_LOSS:
    # The host logs the loss at different steps in each run, so interpolate.
    steps = by_run[curve.run.iloc[0]].dropna().index
    by_run = by_run.interpolate('index', limit_area='inside').loc[steps]
  by_run = by_run.dropna()
  mean, spread = by_run.mean(axis=1), by_run.std(axis=1)
  ends = None if len(mean) < 10 else [0, -1]
  squares = curve.standard_error.pow(2).groupby(curve.step).mean()
  errors = squares[mean.index] ** 0.5
  panel.plot(mean.index, mean, label=label, markevery=ends, **look._asdict())
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
  if spread.any():
    panel.fill_between(
      mean.index,
      mean - spread,
      mean + spread,
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
  table = tables.make(runs)
  metrics = table.scores.groupby('column').metric.first()
  is_perplexity = metrics == layouts.LOG_PERPLEXITY
  if metrics.empty:
    raise UserError(
      'no evaluation is in ' + ', '.join(run.name for run in runs)
    )
  name = 'log perplexity' if is_perplexity.all() else 'score'
  lower = metrics.index.isin([c.key for c in table.columns if c.better < 0])
  kinds = ~lower, ~is_perplexity, is_perplexity  # the first one found
  keys = set(metrics.index[next(kind for kind in kinds if kind.any())])
  overall = layouts.Column(
    '', '', {}, [c for c in table.columns if c.key in keys]
  )
  costs = {'Steps/s': 'steps per second', 'Params': 'parameters (millions)'}
  place = ['model', 'run']
  wide = table.cells.pivot(index=place, columns='name', values='value')
  points = wide.reindex(columns=list(costs)).reset_index()
  points['Params'] /= 1e6
  points['score'] = [
    overall.average(dict(zip(cells.name, cells.value, strict=True)))
    for _, cells in table.cells.groupby(place)
  ]
  if points.score.isna().all():
    raise UserError(
      'in every run, one of the scores to average is missing or not defined, '
      'such as the correlation of answers that are all alike'
    )

  def fill(axes: style.Panels) -> None:
    for panel, (cost, cost_name) in zip(axes[0], costs.items(), strict=True):
      for number, model in enumerate(table.models):
        pairs = points.loc[points.model == model, [cost, 'score']].dropna()
        if pairs.empty:
          continue
        across, along = (error or None for error in pairs.std().fillna(0))
        look = style.look(number)
        panel.errorbar(
          *pairs.mean(),
          along,
          across,
          label=model,
          color=look.color,
          marker=look.marker,
          linestyle='none',
          linewidth=0.8,
          capsize=2,
        )
      panel.set_xlabel(cost_name)
      panel.margins(0.2)
    of_tasks = f' (mean of {len(keys)} tasks)' * (len(keys) > 1)
    axes[0][0].set_ylabel(f'{name} at the last step{of_tasks}')

  return style.panels(1, 2, fill, height=2.6, sharey=True)


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

  def fill(axes: style.Panels) -> None:
    for row, stack in zip(axes, stacks, strict=True):
      for panel, layer in zip(row, shown, strict=True):
        panel.set(title=f'{stack}, layer {layer}', ylim=(0, 1), xlabel=_STEP)
        here = alphas[(alphas['stack'] == stack) & (alphas.layer == layer)]
        for letter, of_letter in here.groupby('function', sort=False):
          heads = of_letter.pivot(index='step', columns='head', values='value')
          look = style.look(letters.index(letter))
          looks = {**look._asdict(), 'marker': look.marker * (len(heads) == 1)}
          thin = {**looks, 'alpha': 0.35, 'linewidth': 0.6}
          panel.plot(heads.index, heads.to_numpy(), **thin)
          panel.plot(heads.index, heads.mean(axis=1), label=letter, **looks)
      row[0].set_ylabel('α')

  grid = len(stacks), len(shown)
  return style.panels(*grid, fill, legend_title=label, sharex=True, sharey=True)
