"""Quality against cost: the score over speed and parameters."""

from collections.abc import Callable, Sequence
from typing import Optional

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synth_mtf.errors import UserError
from synth_mtf.results.figures import seeds, style
from synth_mtf.results.runs import Run
from synth_mtf.results.seeds import by_model

_PERPLEXITY = 'neg_log_perplexity'
_OF_TOKENS = (_PERPLEXITY, 'token_accuracy', 'sequence_accuracy')


def draw(runs: Sequence[Run]) -> Figure:
  """Draws a point per model: its score against steps per second and parameters.

  The score is the mean over metrics of each task, then over tasks (T5's rule),
  at the last step evaluated; log perplexity if no run has scores. Bars are one
  standard deviation over seeds.

  Args:
    runs: of any variants.

  Raises:
    UserError: no run was evaluated.
  """
  measures: list[tuple[str, Callable[[Run], Optional[float]]]] = [
    ('score', score),
    ('log perplexity', log_perplexity),
  ]
  shown = [
    (name, measure)
    for name, measure in measures
    if any(measure(run) is not None for run in runs)
  ]
  if not shown:
    raise UserError(
      'no evaluation is in ' + ', '.join(run.name for run in runs)
    )
  name, measure = shown[0]
  costs: list[tuple[str, Callable[[Run], Optional[float]]]] = [
    ('steps a second', lambda run: run.steps_per_second),
    ('parameters (millions)', _millions),
  ]

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for panel, (cost_name, cost) in zip(axes[0], costs):
      for number, (label, of_model) in enumerate(by_model(runs).items()):
        _point(panel, of_model, measure, cost, number, label)
      panel.set_xlabel(cost_name)
      panel.margins(0.2)
    axes[0][0].set_ylabel(f'{name} at the last step')
    style.legend(figure, axes[0])
    for panel in axes[0]:
      style.leave_out_overlaps(figure, panel.texts)

  return style.panels(1, 2, fill, height=2.6, sharey=True)


def score(run: Run) -> Optional[float]:
  """The mean over tasks at the last step evaluated."""
  results = [
    r for r in run.results if r.metric not in _OF_TOKENS and r.value is not None
  ]
  if not results:
    return None
  last = max(result.step for result in results)
  by_task: dict[str, list[float]] = {}
  for result in results:
    if result.step == last and result.value is not None:
      by_task.setdefault(result.task, []).append(result.value)
  return float(np.mean([np.mean(values) for values in by_task.values()]))


def log_perplexity(run: Run) -> Optional[float]:
  """The mean over tasks at the last step evaluated, in nats."""
  values: dict[int, list[float]] = {}
  for result in run.results:
    if result.metric == _PERPLEXITY and result.value is not None:
      values.setdefault(result.step, []).append(result.value)
  return -float(np.mean(values[max(values)])) if values else None


def _millions(run: Run) -> Optional[float]:
  return None if run.parameters is None else run.parameters / 1e6


def _point(
  panel: Axes,
  runs: Sequence[Run],
  measure: Callable[[Run], Optional[float]],
  cost: Callable[[Run], Optional[float]],
  number: int,
  label: str,
) -> None:
  """Draws mean and spread of the seeds that have both."""
  pairs = [
    (x, y)
    for x, y in ((cost(run), measure(run)) for run in runs)
    if x is not None and y is not None
  ]
  if not pairs:
    return
  points = np.array(pairs)
  (x, y), (across, along) = points.mean(0), seeds.spread(points)
  looks = style.look(number)
  panel.errorbar(
    x,
    y,
    xerr=across or None,
    yerr=along or None,
    marker=looks.marker,
    color=looks.color,
    markersize=6,
    linestyle='none',
    capsize=2,
    linewidth=0.8,
    label=label,
  )
  panel.annotate(
    label,
    (x, y),
    xytext=(5, 4),
    textcoords='offset points',
    fontsize=7,
    color=style.GREY,
  )
