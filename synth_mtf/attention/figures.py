"""Figures of attention: histograms, entropy and distance, heat maps."""

from collections.abc import Callable, Sequence
from typing import Optional

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from synth_mtf.attention.file import SIDES, Array, Attention
from synth_mtf.results import style

_PAPER_LAYERS = (1, 3, 5)
# Weights below the first edge are counted with it.
_EDGES = np.logspace(-5, 0, 41)
_RARE = 0.5  # per cent; the axis need not show bins with less
_HEADS_SPREAD = 0.35  # how far the points of a layer are spread
_MAX_HEADS = 4
_MAX_TOKENS = 24  # that can be read beside a map
_MAX_TOKENS_BELOW = 16


def histograms(
  attentions: Sequence[Attention], layers: Optional[Sequence[int]] = None
) -> Figure:
  """How many weights of a layer are of which size: the paper's Figures 2, 3.

  Pairs that a query must not look at are left out.

  Args:
    attentions: of variants (colours) and steps (dashes).
    layers: numbers from 1; default: 1, 3 and 5, or all of fewer than five.
  """
  stacks = _stacks(attentions)
  shown = _layers(attentions, layers)
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
  """The percentage of the visible weights in each bin."""
  shared = one.stacks[stack].weights.shape[1] == 1
  examples = range(1 if shared else one.examples)
  weights = np.concatenate(
    [one.weights(stack, n)[layer - 1].ravel() for n in examples]
  )
  weights = weights[weights != 0]
  counts, _ = np.histogram(np.clip(weights, _EDGES[0], 1), _EDGES)
  return 100 * counts / len(weights)


def heads(attentions: Sequence[Attention]) -> Figure:
  """Mean distance and mean entropy of each head, over layers.

      distance = mean over queries i of sum_j W[i, j] |i - j|
      entropy  = mean over queries i of - sum_j W[i, j] log W[i, j]  (nats)

  Cross-attention has no distance. A point is a head, a line the mean of a
  layer.
  """
  stacks = _stacks(attentions)

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for (left, right), stack in zip(axes, stacks):
      measures = [(left, 'entropy', entropy, 'nats')]
      if stack == 'cross':
        right.set_axis_off()
      else:
        measures.append((right, 'distance', distance, 'tokens'))
      for panel, name, measure, unit in measures:
        _draw_heads(panel, attentions, stack, measure)
        panel.set_title(f'{stack}: {name}')
        panel.set_ylabel(unit)
        panel.set_ylim(bottom=0)
        panel.xaxis.get_major_locator().set_params(integer=True)
    for column in range(2):
      lowest = [row[column] for row in axes if row[column].axison][-1]
      lowest.set_xlabel('layer')
    style.legend(figure, (panel for row in axes for panel in row))

  return style.panels(len(stacks), 2, fill)


def _draw_heads(
  panel: Axes,
  attentions: Sequence[Attention],
  stack: str,
  measure: Callable[[Attention, str], Array],
) -> None:
  """A point per head, and the mean of each layer."""
  for number, one in enumerate(attentions):
    if stack not in one.stacks:
      continue
    name, look = looks(attentions)[number]
    values = measure(one, stack)
    aside = (number + 0.5) / len(attentions) - 0.5
    layers = np.arange(1, len(values) + 1) + aside * _HEADS_SPREAD
    for head in values.T:
      panel.plot(
        layers, head, look.marker, color=look.color, alpha=0.4, markersize=3
      )
    panel.plot(layers, values.mean(-1), label=name, **look._asdict())


def entropy(attention: Attention, stack: str) -> Array:
  """In nats, [layers, heads]; the mean over all queries of all examples."""

  def of_rows(w: Array) -> Array:
    return -(w * np.log(np.where(w > 0, w, 1))).sum(-1)

  return _mean(attention, stack, of_rows)


def distance(attention: Attention, stack: str) -> Array:
  """In tokens, [layers, heads]; the mean over all queries of all examples."""

  def of_rows(w: Array) -> Array:
    offsets = np.subtract.outer(*map(np.arange, w.shape[-2:]))
    return (w * np.abs(offsets)).sum(-1)

  return _mean(attention, stack, of_rows)


def _mean(
  attention: Attention, stack: str, of_rows: Callable[[Array], Array]
) -> Array:
  rows = [
    of_rows(attention.weights(stack, example).astype(np.float64))
    for example in range(attention.examples)
  ]
  return np.concatenate(rows, axis=-1).mean(-1)


def heat_maps(
  attention: Attention,
  stack: str,
  example: int = 0,
  values: str = 'weights',
  layers: Optional[Sequence[int]] = None,
  heads: Optional[Sequence[int]] = None,
) -> Figure:
  """What each query (a row) looks at: the paper's Figures 4 to 7.

  Args:
    attention: of a model.
    stack: 'encoder', 'decoder' or 'cross'.
    example: which of its texts.
    values: 'weights', or 'logits' for B, blank where a query must not look.
    layers: numbers from 1; default: as for `histograms`.
    heads: numbers from 1; default: the first four.
  """
  of_stack = attention.stacks[stack]
  rows = [n for n in _layers([attention], layers) if n <= of_stack.layers]
  columns = style.chosen(heads, of_stack.heads, 'head') or list(
    range(1, min(_MAX_HEADS, of_stack.heads) + 1)
  )
  maps = attention.weights(stack, example)
  if values == 'logits':
    maps = np.where(maps == 0, np.nan, attention.logits(stack, example))
  maps = maps[np.ix_([n - 1 for n in rows], [n - 1 for n in columns])]
  most = float(np.nanmax(np.abs(maps)))
  name, colours, least = 'attention weight', 'Blues', 0.0
  if values == 'logits':
    name, colours, least = 'B', 'PuOr', -most
  queries, memory = attention.axes(stack, example)

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for number, (row, of_layer) in enumerate(zip(axes, maps)):
      for panel, head, one in zip(row, columns, of_layer):
        panel.imshow(
          one, interpolation='nearest', cmap=colours, vmin=least, vmax=most
        )
        panel.set_title(f'layer {rows[number]}, head {head}')
        panel.grid(False)
        panel.set_facecolor('0.85')
        _write_tokens(panel.yaxis, queries, _MAX_TOKENS)
        _write_tokens(panel.xaxis, memory, _MAX_TOKENS_BELOW, rotation=90)
        if panel is not row[0]:
          panel.tick_params(labelleft=False)
        if number < len(rows) - 1:
          panel.tick_params(labelbottom=False)
    panels = [panel for row in axes for panel in row]
    figure.colorbar(panels[0].images[0], ax=panels, label=name, shrink=0.8)
    figure.suptitle(f'{attention.label}, step {attention.step}, {stack}')

  width = (style.WIDTH - 1.4) / len(columns)
  height = width * len(queries) / len(memory) + 0.35
  return style.panels(
    len(rows), len(columns), fill, height, layout='compressed'
  )


def _write_tokens(
  axis: Axis, tokens: Sequence[str], most: int, **text: object
) -> None:
  """Labels an axis with tokens, if they are few enough to be read."""
  if len(tokens) <= most:
    # A $ would begin a formula.
    labels = [token.replace('$', r'\$') for token in tokens]
    axis.set_ticks(range(len(tokens)), labels, **text)
    axis.set_tick_params(length=0, labelsize=6)


def looks(attentions: Sequence[Attention]) -> list[tuple[str, style.Look]]:
  """Name and look of each: a colour per variant, dashes per step if several."""
  labels = list(dict.fromkeys(one.label for one in attentions))
  steps = sorted({one.step for one in attentions}, reverse=True)
  found = []
  for one in attentions:
    name, look = one.label, style.look(labels.index(one.label))
    if len(steps) > 1:
      name = f'{name}, step {one.step}'
      dash = style.DASHES[steps.index(one.step) % len(style.DASHES)]
      look = look._replace(linestyle=dash)
    found.append((name, look))
  return found


def _stacks(attentions: Sequence[Attention]) -> list[str]:
  """The stacks that at least one of them has, in their order."""
  return [name for name in SIDES if any(name in a.stacks for a in attentions)]


def _layers(
  attentions: Sequence[Attention], layers: Optional[Sequence[int]]
) -> list[int]:
  """The given numbers of layers, or else the paper's, or all of a few."""
  most = max(stack.layers for a in attentions for stack in a.stacks.values())
  few = most < _PAPER_LAYERS[-1]
  return style.chosen(layers, most, 'layer') or list(
    range(1, most + 1) if few else _PAPER_LAYERS
  )
