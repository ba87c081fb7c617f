"""How far and how widely each head looks: attention distance and entropy."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synth_mtf.attention.figures.choice import looks, stacks_of
from synth_mtf.attention.file import Array, Attention
from synth_mtf.results.figures import style

_SPREAD = 0.35  # how far the heads of a layer stand apart


def draw(attentions: Sequence[Attention]) -> Figure:
  """Mean distance and mean entropy of each head, over layers.

      distance = mean over queries i of sum_j W[i, j] |i - j|
      entropy  = mean over queries i of - sum_j W[i, j] log W[i, j]  (nats)

  There is no distance between the texts of cross-attention. A point is a head,
  a line the mean of a layer.

  Args:
    attentions: of variants or steps.
  """
  stacks = stacks_of(attentions)

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for (left, right), stack in zip(axes, stacks):
      for number, one in enumerate(attentions):
        if stack not in one.stacks:
          continue
        aside = (number + 0.5) / len(attentions) - 0.5
        name, look = looks(attentions)[number]
        _points(left, entropy(one, stack), aside, name, look)
        if stack != 'cross':
          _points(right, distance(one, stack), aside, name, look)
      left.set_title(f'{stack}: entropy')
      left.set_ylabel('nats')
      if stack == 'cross':
        right.set_axis_off()
        continue
      right.set_title(f'{stack}: distance')
      right.set_ylabel('tokens')
    for row in axes:
      for panel in row:
        panel.set_ylim(bottom=0)
        panel.xaxis.get_major_locator().set_params(integer=True)
    for column in range(2):
      lowest = [row[column] for row in axes if row[column].axison][-1]
      lowest.set_xlabel('layer')
    style.legend(figure, (panel for row in axes for panel in row))

  return style.panels(len(stacks), 2, fill)


def entropy(attention: Attention, stack: str) -> Array:
  """In nats, [layers, heads]; the mean over all queries of all examples."""

  def of_rows(w: Array) -> Array:
    return -(w * np.log(np.where(w > 0, w, 1))).sum(-1)

  return _mean(attention, stack, of_rows)


def distance(attention: Attention, stack: str) -> Array:
  """In tokens, [layers, heads]; the mean over all queries of all examples."""

  def of_rows(w: Array) -> Array:
    apart = np.subtract.outer(np.arange(w.shape[-2]), np.arange(w.shape[-1]))
    return (w * np.abs(apart)).sum(-1)

  return _mean(attention, stack, of_rows)


def _mean(
  attention: Attention, stack: str, of_rows: Callable[[Array], Array]
) -> Array:
  rows = [
    of_rows(attention.weights(stack, example).astype(np.float64))
    for example in range(attention.examples)
  ]
  return np.concatenate(rows, axis=-1).mean(-1)


def _points(
  panel: Axes, values: Array, aside: float, name: str, looks: style.Look
) -> None:
  """A point for each head, and the mean of each layer."""
  layers = np.arange(1, len(values) + 1) + aside * _SPREAD
  for head in values.T:
    panel.plot(
      layers, head, looks.marker, color=looks.color, alpha=0.4, markersize=3
    )
  panel.plot(
    layers,
    values.mean(-1),
    color=looks.color,
    linestyle=looks.linestyle,
    marker=looks.marker,
    label=name,
  )
