"""Histograms of attention weights by layer and stack: Figures 2 and 3."""

from collections.abc import Iterator, Sequence
from typing import Optional

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synth_mtf.attention.figures.choice import layers_shown, looks, stacks_of
from synth_mtf.attention.file import Array, Attention
from synth_mtf.results.figures import style

# Weights below the first edge are counted with it.
_EDGES = np.logspace(-5, 0, 41)
_RARE = 0.5  # per cent; what is rarer is not worth an axis


def draw(
  attentions: Sequence[Attention], layers: Optional[Sequence[int]] = None
) -> Figure:
  """How many of the weights of a layer are of which size.

  Pairs that a query may not look at are left out. A colour is a variant, a kind
  of line a step.

  Args:
    attentions: of variants and steps.
    layers: numbers from 1 on; default: the paper's 1, 3 and 5, as far as there
      are that many.
  """
  stacks = stacks_of(attentions)
  shown = layers_shown(attentions, layers)

  lowest: list[float] = []

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for row, stack in zip(axes, stacks):
      for panel, layer in zip(row, shown):
        for (name, look), one in zip(looks(attentions), attentions):
          if stack not in one.stacks or one.stacks[stack].layers < layer:
            continue
          shares = _shares(one, stack, layer)
          panel.stairs(
            shares,
            _EDGES,
            color=look.color,
            linestyle=look.linestyle,
            linewidth=1.3,
            label=name,
          )
          lowest.append(_EDGES[np.argmax(shares > _RARE)])
        panel.set_xscale('log')
        panel.set_ylim(bottom=0)
        panel.set_title(f'{stack}, layer {layer}')
      row[0].set_ylabel('weights (%)')
    for panel in axes[-1]:
      panel.set_xlabel('attention weight')
      panel.set_xlim(min(lowest), 1)
    style.legend(figure, (panel for row in axes for panel in row))

  return style.panels(len(stacks), len(shown), fill, sharex=True)


def _shares(one: Attention, stack: str, layer: int) -> Array:
  """The percentage of the weights in each bin."""
  weights = np.concatenate(list(_visible(one, stack, layer)))
  counts, _ = np.histogram(np.clip(weights, _EDGES[0], 1), _EDGES)
  return 100 * counts / len(weights)


def _visible(one: Attention, stack: str, layer: int) -> Iterator[Array]:
  for example in range(one.examples):
    weights = one.weights(stack, example)[layer - 1]
    if one.stacks[stack].weights.shape[1] == 1 and example:
      continue  # the same again
    yield weights[weights != 0]
