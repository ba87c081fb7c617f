"""Learning curves of runs: loss, log perplexity and scores over steps."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synth_mtf.errors import UserError
from synth_mtf.results import runs as runs_
from synth_mtf.results.figures import seeds, style
from synth_mtf.results.runs import Run
from synth_mtf.results.seeds import by_model

_COLUMNS = 3
_MOST_PANELS = 12
_PERPLEXITY = 'neg_log_perplexity'
_TRAINING_LOSS = 'training loss'
_LOG_PERPLEXITY = 'log perplexity'
_LOG_FROM = 10  # as a multiple of the smallest loss
# The curves of each panel and model, one for each seed.
_Panels = dict[str, dict[str, list[dict[float, float]]]]


def draw(runs: Sequence[Run]) -> Figure:
  """Draws a panel for the loss and for each metric, with a line per model.

  A line is the mean over the seeds of a model, in a band of one standard
  deviation. Losses that span a factor of ten have a logarithmic axis: otherwise
  the first step would leave no room for the differences at the end.

  Args:
    runs: of any variants.

  Raises:
    UserError: no curve has two points.
  """
  found: _Panels = {}
  models = by_model(runs)
  for label, of_model in models.items():
    for run in of_model:
      for name, curve in _curves(run):
        found.setdefault(name, {}).setdefault(label, []).append(curve)
  found = {
    name: lines
    for name, lines in found.items()
    if any(len(curve) > 1 for curves in lines.values() for curve in curves)
  }
  if not found:
    raise UserError(
      'no curve has two points: there are neither event files of training nor '
      'evaluations at several steps in ' + ', '.join(run.name for run in runs)
    )
  names = list(found)[:_MOST_PANELS]
  columns = min(_COLUMNS, len(names))

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    panels = [panel for row in axes for panel in row]
    for panel, name in zip(panels, names):
      for number, label in enumerate(models):
        if label in found[name]:
          of_seeds = found[name][label]
          if name == _TRAINING_LOSS:
            of_seeds = seeds.at_common_steps(of_seeds)
          _line(panel, seeds.band(of_seeds), number, label)
      if name.endswith((_TRAINING_LOSS, _LOG_PERPLEXITY)):
        _scale_loss(panel)
      panel.set_title(name)
    for panel in panels[len(names) :]:
      panel.set_axis_off()
    for column in range(columns):
      lowest = [row[column] for row in axes if row[column].axison][-1]
      lowest.set_xlabel('step')
    style.legend(figure, panels)

  return style.panels(-(-len(names) // columns), columns, fill, height=1.8)


def _curves(run: Run) -> Iterator[tuple[str, dict[float, float]]]:
  """Yields the curves of a run and their names."""
  if runs_.LOSS in run.curves:
    yield _TRAINING_LOSS, dict(run.curves[runs_.LOSS])
  found: dict[str, dict[float, float]] = {}
  for result in run.results:
    if result.value is None:
      continue
    name, value = f'{result.task}\n{result.metric}', result.value
    if result.metric == _PERPLEXITY:
      name, value = f'{result.task}\n{_LOG_PERPLEXITY}', -value
    found.setdefault(name, {})[result.step] = value
  yield from found.items()


def _line(panel: Axes, band: seeds.Band, number: int, label: str) -> None:
  looks = style.look(number)
  panel.plot(
    band.steps,
    band.mean,
    color=looks.color,
    linestyle=looks.linestyle,
    marker=looks.marker if len(band.steps) < 10 else '',
    label=label,
  )
  if np.any(band.spread):
    panel.fill_between(
      band.steps,
      band.mean - band.spread,
      band.mean + band.spread,
      color=looks.color,
      alpha=0.2,
      linewidth=0,
    )


def _scale_loss(panel: Axes) -> None:
  values = np.concatenate([line.get_ydata() for line in panel.lines])
  if 0 < _LOG_FROM * values.min() <= values.max():
    panel.set_yscale('log')
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter('{x:g}'))
    panel.yaxis.set_minor_locator(ticker.NullLocator())
