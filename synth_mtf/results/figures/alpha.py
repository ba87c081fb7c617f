"""alpha, the weights in a mixture, by layer and head over training."""

from collections.abc import Sequence
from typing import Optional

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synth_mtf.errors import UserError
from synth_mtf.results.alphas import Path
from synth_mtf.results.figures import style

_MOST_COLUMNS = 4


def draw(
  label: str, paths: Sequence[Path], layers: Optional[Sequence[int]] = None
) -> Figure:
  """Draws how each head weights the functions over training.

  Colours are functions, thin lines heads, thick lines the means of layers.

  Args:
    label: of the model.
    paths: of its layers.
    layers: counted from 1; by default four from the first to the last.

  Raises:
    UserError: no layer mixes functions.
  """
  if not paths:
    raise UserError(f'{label} mixes no functions: it has no alpha')
  stacks = list(dict.fromkeys(path.stack for path in paths))
  shown = style.chosen(layers, max(p.layer for p in paths), 'layer') or _some(
    paths
  )
  letters = list(dict.fromkeys(f for path in paths for f in path.functions))
  by_place = {(path.stack, path.layer): path for path in paths}

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for row, stack in zip(axes, stacks):
      for panel, layer in zip(row, shown):
        panel.set_title(f'{stack}, layer {layer}')
        panel.set_ylim(0, 1)
        path = by_place.get((stack, layer))
        if path:
          _lines(panel, path, letters)
      row[0].set_ylabel(r'$\alpha$')
    for panel in axes[-1]:
      panel.set_xlabel('step')
      panel.xaxis.get_major_locator().set_params(integer=True)
    style.legend(figure, (panel for row in axes for panel in row), label)

  return style.panels(len(stacks), len(shown), fill, sharex=True, sharey=True)


def _some(paths: Sequence[Path]) -> list[int]:
  there = sorted({path.layer for path in paths})
  at = np.linspace(0, len(there) - 1, min(_MOST_COLUMNS, len(there)))
  return [there[int(round(index))] for index in at]


def _lines(panel: Axes, path: Path, letters: Sequence[str]) -> None:
  alone = len(path.steps) == 1
  for function, letter in enumerate(path.functions):
    looks = style.look(letters.index(letter))
    marker = looks.marker if alone else ''
    for head in path.values[..., function].T:
      panel.plot(
        path.steps,
        head,
        marker or '-',
        color=looks.color,
        alpha=0.35,
        linewidth=0.6,
        markersize=3,
      )
    panel.plot(
      path.steps,
      path.values[..., function].mean(-1),
      color=looks.color,
      linestyle=looks.linestyle,
      marker=marker,
      label=letter,
    )
