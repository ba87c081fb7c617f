"""The figures of a page: those that can be drawn of what there is."""

from collections.abc import Iterator, Sequence
from typing import Any

from synth_mtf.attention.file import Attention
from synth_mtf.errors import UserError
from synth_mtf.report.page import Figure
from synth_mtf.results import alphas
from synth_mtf.results.runs import Run


def draw(
  runs: Sequence[Run], looked: Sequence[Attention]
) -> tuple[list[Figure], list[str]]:
  """Draws runs, and what they attend to.

  Args:
    runs: at least one.
    looked: what some of them attend to.

  Returns:
    The figures; and which there are not, and why.
  """
  try:
    from synth_mtf.results.figures import style
  except UserError as error:
    return [], [f'No figures: {error}.']
  found, missing = [], []
  for caption, function, arguments in _wanted(runs, looked):
    try:
      found.append(Figure(caption, style.svg(function(*arguments))))
    except UserError as error:
      missing.append(f'Not drawn ({caption}): {error}.')
  return found, missing


def _wanted(
  runs: Sequence[Run], looked: Sequence[Attention]
) -> Iterator[tuple[str, Any, Sequence[Any]]]:
  """Yields caption, function and arguments of each figure."""
  from synth_mtf.attention.figures import heads, histograms
  from synth_mtf.results.figures import alpha, curves, scores

  yield 'Learning curves', curves.draw, [runs]
  yield 'Score against speed and parameters', scores.draw, [runs]
  if looked:
    yield (
      'How many attention weights are of which size, by stack and layer',
      histograms.draw,
      [looked],
    )
    yield (
      'How widely (entropy) and how far (distance) each head looks',
      heads.draw,
      [looked],
    )
  for run in runs:
    paths = alphas.paths(run) if run.gin else []
    if paths:
      caption = f'alpha over training, {run.label}, {run.name}'
      yield caption, alpha.draw, [run.label, paths]
