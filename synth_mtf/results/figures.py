"""Plots runs: learning curves, scores against costs, and alpha.

Requires matplotlib (extra `[plot]`). `style` alone imports it and says if it is
missing.
"""

from collections.abc import Sequence
from typing import Optional

import numpy as np
import pandas as pd

from synth_mtf.errors import UserError
from synth_mtf.results import runs as runs_
from synth_mtf.results import scores as scores_
from synth_mtf.results import style
from synth_mtf.results.layouts import LOG_PERPLEXITY, PER_TOKEN
from synth_mtf.results.runs import Run
from synth_mtf.results.style import Axes, Figure

_COLUMNS = 3
_MOST_PANELS = 12
_TRAINING_LOSS = 'training loss'
_STACKS = ('encoder', 'decoder', 'cross')


def curves(runs: Sequence[Run]) -> Figure:
  """Plots the loss and each metric in its own panel, with one line per model.

  A line is the mean over a model's seeds, inside a band of one standard
  deviation. Losses that span a factor of ten get a logarithmic axis; otherwise,
  the initial loss would flatten the differences at the end.

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
  names = names[:_MOST_PANELS]
  columns = min(_COLUMNS, len(names))
  models = list(scores_.by_model(runs))

  def fill(axes: style.Panels) -> None:
    for panel, name in zip(np.ravel(axes), names):
      here = points[points.panel == name]
      for model, of_model in here.groupby('model', sort=False):
        _draw_band(panel, of_model, model, style.look(models.index(model)))
      is_loss = name.endswith((_TRAINING_LOSS, 'log perplexity'))
      if is_loss and 0 < 10 * here.value.min() <= here.value.max():
        panel.set_yscale('log', subs=[2, 5])
        panel.yaxis.set_major_formatter('{x:g}')
        panel.yaxis.set_minor_formatter('{x:g}')
      panel.set(title=name, xlabel='step')
    for panel in np.ravel(axes)[len(names) :]:
      panel.set_axis_off()

  return style.panels(-(-len(names) // columns), columns, fill, height=1.8)


def _points(runs: Sequence[Run]) -> pd.DataFrame:
  """Returns the points of all curves, with their panel, model, run and step."""
  losses = [
    (_TRAINING_LOSS, model, run.name, step, value)
    for model, same in scores_.by_model(runs).items()
    for run in same
    for step, value in run.curves.get(runs_.LOSS, {}).items()
  ]
  found = scores_.frame(runs).dropna(subset=['task', 'value'])
  is_perplexity = found.metric == LOG_PERPLEXITY
  found['value'] = found.value.mask(is_perplexity, -found.value)
  metric = found.metric.mask(is_perplexity, 'log perplexity')
  found['panel'] = found.task + '\n' + metric
  columns = ['panel', 'model', 'run', 'step', 'value']
  parts = [pd.DataFrame(losses, columns=columns), found[columns]]
  return pd.concat([part for part in parts if len(part)] or parts[1:])


def _draw_band(
  panel: Axes, curve: pd.DataFrame, label: str, look: style.Look
) -> None:
  """Draws mean and standard deviation at the steps that all runs have."""
  by_run = curve.pivot_table('value', 'step', 'run', aggfunc='last')
  if curve.panel.iloc[0] == _TRAINING_LOSS:
    # The host logs the loss at different steps in each run, so interpolate.
    steps = by_run[curve.run.iloc[0]].dropna().index
    by_run = by_run.interpolate('index', limit_area='inside').loc[steps]
  by_run = by_run.dropna()
  mean, spread = by_run.mean(axis=1), by_run.std(axis=1)
  looks = {**look._asdict(), 'marker': look.marker * (len(mean) < 10)}
  panel.plot(mean.index, mean, label=label, **looks)
  if spread.any():
    panel.fill_between(
      mean.index,
      mean - spread,
      mean + spread,
      color=look.color,
      alpha=0.2,
      linewidth=0,
    )


def scores(runs: Sequence[Run]) -> Figure:
  """Plots each model's score against steps per second and against parameters.

  The score averages the metrics of each task, then the tasks (T5's rule), at
  the last evaluated step; if no run has scores, it is log perplexity. Error
  bars show one standard deviation over seeds.

  Raises:
    UserError: no run was evaluated.
  """
  frame = scores_.frame(runs)
  known = frame.dropna(subset=['task', 'value'])
  name, shown = 'score', known[~known.metric.isin(PER_TOKEN)]
  if shown.empty:
    name, shown = 'log perplexity', known[known.metric == LOG_PERPLEXITY]
    shown = shown.assign(value=-shown.value)
  if shown.empty:
    raise UserError(
      'no evaluation is in ' + ', '.join(run.name for run in runs)
    )
  last = shown[shown.step == shown.groupby('run').step.transform('max')]
  points = frame[frame.task.isna()].pivot(
    index='run', columns='tag', values='value'
  )
  by_task = last.groupby(['run', 'task']).value.mean()
  points['score'] = by_task.groupby('run').mean()
  costs = {
    'steps_per_second': ('steps a second', 1),
    'parameters': ('parameters (millions)', 1e6),
  }

  def fill(axes: style.Panels) -> None:
    for panel, (cost, (cost_name, unit)) in zip(axes[0], costs.items()):
      for number, (label, same) in enumerate(scores_.by_model(runs).items()):
        of_model = points.reindex([run.name for run in same])
        pairs = of_model.reindex(columns=[cost, 'score']).dropna()
        if pairs.empty:
          continue
        look = style.look(number)
        (x, y), (across, along) = pairs.mean(), pairs.std().fillna(0)
        panel.errorbar(
          x / unit,
          y,
          xerr=across / unit or None,
          yerr=along or None,
          marker=look.marker,
          color=look.color,
          linestyle='none',
          capsize=2,
          linewidth=0.8,
          label=label,
        )
      panel.set_xlabel(cost_name)
      panel.margins(0.2)
    axes[0][0].set_ylabel(f'{name} at the last step')

  return style.panels(1, 2, fill, height=2.6, sharey=True)


def alpha(
  label: str, alphas: pd.DataFrame, layers: Optional[Sequence[int]] = None
) -> Figure:
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
    for row, stack in zip(axes, stacks):
      for panel, layer in zip(row, shown):
        panel.set(title=f'{stack}, layer {layer}', ylim=(0, 1), xlabel='step')
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
