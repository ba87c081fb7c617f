"""How far and how widely each head looks: attention distance and entropy."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synth_mtf.analysis.attention_file import Array, Attention
from synth_mtf.analysis.figures import style
from synth_mtf.analysis.figures.choice import stacks_of

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
  names = [_name(one, attentions) for one in attentions]

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for (left, right), stack in zip(axes, stacks):
      for number, (name, one) in enumerate(zip(names, attentions)):
        if stack not in one.stacks:
          continue
        aside = (number + 0.5) / len(attentions) - 0.5
        _points(left, entropy(one, stack), number, aside, name)
        if stack != 'cross':
          _points(right, distance(one, stack), number, aside, name)
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
        panel.set_xlabel('layer')
        panel.xaxis.get_major_locator().set_params(integer=True)
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


def _mean(attention: Attention, stack: str, of_rows: object) -> Array:
  rows = [
    of_rows(attention.weights(stack, example).astype(np.float64))  # type: ignore[operator]
    for example in range(attention.examples)
  ]
  return np.concatenate(rows, axis=-1).mean(-1)


def _points(
  panel: Axes, values: Array, number: int, aside: float, name: str
) -> None:
  """A point for each head, and the mean of each layer."""
  looks = style.look(number)
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


def _name(one: Attention, all_: Sequence[Attention]) -> str:
  steps = {other.step for other in all_}
  return one.label + (f', step {one.step}' if len(steps) > 1 else '')
