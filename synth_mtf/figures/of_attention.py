"""Plots attention: histograms, entropy and distance, heat maps.

Attention is that of `attention.file`. Layers and heads are counted from 1.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from synth_mtf.attention.file import SIDES_OF_STACK, Array, Attention
from synth_mtf.errors import UserError
from synth_mtf.figures import style
from synth_mtf.results.runs import common_folder

# Weights below the first edge are counted in the first bin.
_EDGES = np.logspace(-4, 0, 33)
_MAX_HEADS = 4
_MAX_TOKENS = {'y': 24, 'x': 16}  # more would not be legible


def histograms(
  attentions: Sequence[Attention], layers: Sequence[int] | None = None
) -> style.Figure:
  """Plots histograms of each layer's weights, as in the paper's Figures 2, 3.

  Masked pairs are left out. The default layers are 1, 3 and 5, or all if there
  are fewer than five.
  """
  _require_softmax(attentions)
  stacks = _stacks(attentions)
  shown = _layers(attentions, layers)
  with style.panels(len(stacks), len(shown), sharex=True) as (figure, grid):
    for row, stack in zip(grid, stacks, strict=True):
      curves = list(_curves(attentions, stack))
      row[0].set_ylabel('weights (%)')
      for panel, layer in zip(row, shown, strict=True):
        for curve in curves:
          if layer <= len(curve.weights[0]):
            _draw_histogram(panel, curve, layer)
        panel.set(xscale='log', title=f'{stack}, layer {layer}', ylim=(0, None))
        panel.xaxis.set_major_formatter('{x:g}')
    for panel in grid[-1]:
      panel.set_xlabel('attention weight')
  return figure


def heads(attentions: Sequence[Attention]) -> style.Figure:
  """Plots the mean distance and mean entropy of each head by layer.

      distance = mean over queries i of sum_j W[i, j] |i - j|
      entropy  = mean over queries i of - sum_j W[i, j] log W[i, j]  (nats)

  Cross-attention has no distance. Points are heads; lines connect the means of
  layers.
  """
  _require_softmax(attentions)
  stacks = _stacks(attentions)
  with style.panels(len(stacks), 2) as (figure, grid):
    for (left, right), stack in zip(grid, stacks, strict=True):
      curves = list(_curves(attentions, stack))
      left.set(title=f'{stack}: entropy', ylabel='nats')
      _draw_heads(left, curves, _entropy)
      if stack == 'cross':
        right.set_axis_off()
      else:
        right.set(title=f'{stack}: distance', ylabel='tokens')
        _draw_heads(right, curves, _distance)
  return figure


class _Curve(NamedTuple):
  """A model in a panel: its weights by example, its name and its look."""

  weights: Sequence[Array]  # [layers, heads, queries, memory]
  label: str
  look: style.Look


def names(attentions: Sequence[Attention]) -> list[str]:
  """Returns the label of each model, with its folder if others share the label.

  Several steps of one run have the same name.
  """
  folder = common_folder([attention.run for attention in attentions])
  runs_of: dict[str, set[str]] = {}
  for attention in attentions:
    runs_of.setdefault(attention.label, set()).add(attention.run)
  named = []
  for attention in attentions:
    name = attention.label
    if len(runs_of[name]) > 1:
      name += f', {attention.run.removeprefix(folder)}'
    named.append(name)
  return named


def _curves(attentions: Sequence[Attention], stack: str) -> Iterator[_Curve]:
  """Yields the curve of each model that has the stack.

  A colour stands for a model, dashes for a step.
  """
  named = names(attentions)
  models = list(dict.fromkeys(named))
  steps = sorted({attention.step for attention in attentions}, reverse=True)
  for attention, label in zip(attentions, named, strict=True):
    if stack not in attention.stacks:
      continue
    look = style.look(models.index(label))
    if len(steps) > 1:
      label = f'{label}, step {attention.step}'
      number = steps.index(attention.step)
      dashes = style.DASHES[number % len(style.DASHES)]
      look = look._replace(linestyle=dashes)
    examples = range(attention.examples)
    weights = [attention.weights(stack, example) for example in examples]
    yield _Curve(weights, label, look)


def _draw_histogram(panel: style.Axes, curve: _Curve, layer: int) -> None:
  """Draws the shares of weights by size; 0 is a masked pair."""
  of_layer = [weights[layer - 1].ravel() for weights in curve.weights]
  sizes = np.concatenate(of_layer)
  sizes = np.clip(sizes[sizes != 0], _EDGES[0], 1)
  counts, _ = np.histogram(sizes, _EDGES)
  panel.stairs(
    100 * counts / len(sizes),
    _EDGES,
    label=curve.label,
    color=curve.look.color,
    linestyle=curve.look.linestyle,
    linewidth=1.3,
  )


def _draw_heads(
  panel: style.Axes,
  curves: Sequence[_Curve],
  measure: Callable[[Array], Array],
) -> None:
  """Draws a measure of each head, averaged over queries, by layer."""
  for curve in curves:
    by_query = [measure(w.astype(np.float64)) for w in curve.weights]
    by_head = np.concatenate(by_query, axis=-1).mean(-1)
    layers = range(1, len(by_head) + 1)
    panel.plot(
      layers,
      by_head,
      curve.look.marker,
      color=curve.look.color,
      alpha=0.4,
      markersize=3,
    )
    panel.plot(
      layers, by_head.mean(-1), label=curve.label, **curve.look._asdict()
    )
  panel.set_xlabel('layer')
  panel.set_ylim(bottom=0)
  panel.xaxis.get_major_locator().set_params(integer=True)


def _require_softmax(attentions: Sequence[Attention]) -> None:
  for attention in attentions:
    for stack in attention.stacks.values():
      if (stack.weights < 0).any():
        raise UserError(
          f'{attention.label} has no softmax, so its weights have a sign and '
          'no entropy; leave it out, or give --figures=heat_maps'
        )


def _entropy(weights: Array) -> Array:
  logs = np.log(np.where(weights > 0, weights, 1))
  return -(weights * logs).sum(-1)


def _distance(weights: Array) -> Array:
  queries, memory = weights.shape[-2:]
  distances = np.abs(np.subtract.outer(np.arange(queries), np.arange(memory)))
  return (weights * distances).sum(-1)


def heat_maps(
  attention: Attention,
  stack: str,
  example: int = 0,
  values: str = 'weights',
  layers: Sequence[int] | None = None,
  heads: Sequence[int] | None = None,
  name: str | None = None,
) -> style.Figure:
  """Plots heat maps with a row per query, as in the paper's Figures 4 to 7.

  What a query must not see is grey. The shades of weights follow their square
  roots: the few large weights would leave all others white.

  Args:
    attention: attention of one model.
    stack: 'encoder', 'decoder' or 'cross'.
    example: index of the example.
    values: 'weights', or 'logits' for B.
    layers: as in `histograms`.
    heads: the default is the first four.
    name: of the model, such as one of `names`; the default is its label.
  """
  size = attention.stacks[stack]
  rows = [n for n in _layers([attention], layers) if n <= size.layers]
  if not rows:
    raise UserError(
      f'the {stack} has {size.layers} layers, and --layers names none of them'
    )
  first_heads = range(1, min(size.heads, _MAX_HEADS) + 1)
  columns = style.chosen(heads or first_heads, size.heads, 'head')
  weights = attention.weights(stack, example)
  if values == 'logits':
    logits = attention.weights(stack, example, 'logits')
    maps, unit, is_signed = logits, 'B', True
  else:
    # They are negative only without a softmax.
    is_signed = bool((weights < 0).any())
    maps, unit = weights, 'attention weight'
  maps = np.where(weights == 0, np.nan, maps)
  maps = maps[np.ix_(np.array(rows) - 1, np.array(columns) - 1)]
  most = float(np.nanmax(np.abs(maps)))
  queries, memory = attention.axes(stack, example)
  # A single column would otherwise be as large as a page.
  width = style.WIDTH if len(columns) > 1 else style.WIDTH / 2
  panel_width = (width - 1.4) / len(columns)
  height = panel_width * len(queries) / len(memory) + 0.35
  with style.panels(
    len(rows), len(columns), height, layout='compressed', width=width
  ) as (figure, grid):
    for row, layer, of_layer in zip(grid, rows, maps, strict=True):
      for panel, head, of_head in zip(row, columns, of_layer, strict=True):
        panel.imshow(
          of_head,
          interpolation='nearest',
          cmap='PuOr' if is_signed else 'Blues',
          norm=style.signed(most) if is_signed else style.rooted(most),
        )
        panel.set(title=f'layer {layer}, head {head}', facecolor='0.85')
        panel.grid(False)
        _label(panel.yaxis, queries)
        _label(panel.xaxis, memory)
        panel.xaxis.set_tick_params(rotation=90)
        panel.label_outer()
    image = grid[0, 0].images[0]
    figure.colorbar(image, ax=list(grid.flat), label=unit, shrink=0.8)
    title = name or attention.label
    figure.suptitle(f'{title}, step {attention.step}, {stack}')
    figure.supylabel('query', size='medium')
    figure.supxlabel('key', size='medium')
  return figure


def _label(axis: Any, tokens: Sequence[str]) -> None:
  """Labels an axis with tokens, unless there are too many to be legible."""
  if len(tokens) <= _MAX_TOKENS[axis.axis_name]:
    axis.set_ticks(range(len(tokens)), tokens)
    axis.set_tick_params(length=0, labelsize=6)


def _stacks(attentions: Sequence[Attention]) -> list[str]:
  return [
    name
    for name in SIDES_OF_STACK
    if any(name in attention.stacks for attention in attentions)
  ]


def _layers(
  attentions: Sequence[Attention], layers: Sequence[int] | None
) -> list[int]:
  """Returns the layers to show, which the deepest stack has."""
  most = 0
  for attention in attentions:
    depths = [stack.layers for stack in attention.stacks.values()]
    most = max(most, *depths)
  return style.chosen(layers, most)
