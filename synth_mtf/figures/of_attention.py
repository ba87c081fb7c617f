"""Plots attention: histograms, entropy and distance, heat maps."""

from collections.abc import Iterator, Sequence

import numpy as np

from synth_mtf.attention.file import SIDES, Array, Attention
from synth_mtf.errors import UserError
from synth_mtf.figures import style

# Weights below the first edge are counted in the first bin.
_EDGES = np.logspace(-4, 0, 33)
_MAX_HEADS = 4
_MAX_TOKENS = {'y': 24, 'x': 16}  # that remain legible at each axis


def histograms(
  attentions: Sequence[Attention], layers: Sequence[int] | None = None
) -> style.Figure:
  """Plots histograms of each layer's weights, as in the paper's Figures 2, 3.

  Masked pairs are left out. Layers count from 1; the default is 1, 3 and 5, or
  all layers if there are fewer than five.
  """
  _require_softmax(attentions)
  stacks, shown = _stacks(attentions), _layers(attentions, layers)

  def fill(axes: style.Panels) -> None:
    for row, stack in zip(axes, stacks, strict=True):
      row[0].set_ylabel('weights (%)')
      for panel, layer in zip(row, shown, strict=True):
        for found, name, look in _looks(attentions, stack):
          if len(found[0]) < layer:
            continue
          sizes = np.concatenate([w[layer - 1].ravel() for w in found])
          sizes = np.clip(sizes[sizes != 0], _EDGES[0], 1)
          shares = 100 * np.histogram(sizes, _EDGES)[0] / len(sizes)
          panel.stairs(
            shares,
            _EDGES,
            label=name,
            color=look.color,
            linestyle=look.linestyle,
            linewidth=1.3,
          )
        panel.set(xscale='log', title=f'{stack}, layer {layer}', ylim=(0, None))
        panel.xaxis.set_major_formatter('{x:g}')
        if stack == stacks[-1]:
          panel.set_xlabel('attention weight')

  return style.panels(len(stacks), len(shown), fill, sharex=True)


def heads(attentions: Sequence[Attention]) -> style.Figure:
  """Plots the mean distance and mean entropy of each head by layer.

      distance = mean over queries i of sum_j W[i, j] |i - j|
      entropy  = mean over queries i of - sum_j W[i, j] log W[i, j]  (nats)

  Cross-attention has no distance. Points are heads; lines connect the means of
  layers.
  """
  _require_softmax(attentions)
  stacks = _stacks(attentions)
  measures = (('entropy', 'nats', _entropy), ('distance', 'tokens', _distance))

  def fill(axes: style.Panels) -> None:
    for row, stack in zip(axes, stacks, strict=True):
      for panel, (name, unit, measure) in zip(row, measures, strict=True):
        if (stack, name) == ('cross', 'distance'):
          panel.set_axis_off()
          continue
        panel.set(title=f'{stack}: {name}', ylabel=unit, xlabel='layer')
        for found, label, look in _looks(attentions, stack):
          rows = [measure(w.astype(np.float64)) for w in found]
          values = np.concatenate(rows, axis=-1).mean(-1)
          x = range(1, len(values) + 1)
          panel.plot(
            x, values, look.marker, color=look.color, alpha=0.4, markersize=3
          )
          panel.plot(x, values.mean(-1), label=label, **look._asdict())
        panel.set_ylim(bottom=0)
        panel.xaxis.get_major_locator().set_params(integer=True)

  return style.panels(len(stacks), 2, fill)


def _require_softmax(attentions: Sequence[Attention]) -> None:
  for one in attentions:
    if any((stack.weights < 0).any() for stack in one.stacks.values()):
      raise UserError(
        f'{one.label} has no softmax, so its weights have a sign and no '
        'entropy; leave it out, or give --figures=heat_maps'
      )


def _entropy(w: Array) -> Array:
  return -(w * np.log(np.where(w > 0, w, 1))).sum(-1)


def _distance(w: Array) -> Array:
  offsets = np.subtract.outer(*map(np.arange, w.shape[-2:]))
  return (w * np.abs(offsets)).sum(-1)


def heat_maps(
  attention: Attention,
  stack: str,
  example: int = 0,
  values: str = 'weights',
  layers: Sequence[int] | None = None,
  heads: Sequence[int] | None = None,
) -> style.Figure:
  """Plots heat maps with a row per query, as in the paper's Figures 4 to 7.

  Args:
    attention: attention of one model.
    stack: 'encoder', 'decoder' or 'cross'.
    example: index of the example.
    values: 'weights', or 'logits' for B, left blank where masked.
    layers: as in `histograms`.
    heads: counted from 1; the default is the first four.
  """
  found = attention.stacks[stack]
  rows = [n for n in _layers([attention], layers) if n <= found.layers]
  if not rows:
    raise UserError(f'the {stack} has {found.layers} layers, none of --layers')
  default = range(1, min(found.heads, _MAX_HEADS) + 1)
  columns = style.chosen(heads or default, found.heads, 'head')
  maps = attention.weights(stack, example)
  name, colours, sign = 'attention weight', 'Blues', 0
  if (maps < 0).any():  # without a softmax
    colours, sign = 'PuOr', -1
  if values == 'logits':
    logits = attention.weights(stack, example, 'logits')
    maps = np.where(maps == 0, np.nan, logits)
    name, colours, sign = 'B', 'PuOr', -1
  maps = maps[np.ix_(np.array(rows) - 1, np.array(columns) - 1)]
  most = float(np.nanmax(np.abs(maps)))
  queries, memory = attention.axes(stack, example)

  def fill(axes: style.Panels) -> None:
    for row, layer, of_layer in zip(axes, rows, maps, strict=True):
      for panel, head, one in zip(row, columns, of_layer, strict=True):
        panel.imshow(
          one,
          interpolation='nearest',
          cmap=colours,
          vmin=sign * most,
          vmax=most,
        )
        panel.set(title=f'layer {layer}, head {head}', facecolor='0.85')
        panel.grid(False)
        for axis, tokens in ((panel.yaxis, queries), (panel.xaxis, memory)):
          if len(tokens) <= _MAX_TOKENS[axis.axis_name]:
            axis.set_ticks(range(len(tokens)), tokens)
            axis.set_tick_params(length=0, labelsize=6)
        panel.xaxis.set_tick_params(rotation=90)
        panel.label_outer()
    panels = [panel for row in axes for panel in row]
    figure = panels[0].figure
    figure.colorbar(panels[0].images[0], ax=panels, label=name, shrink=0.8)
    figure.suptitle(f'{attention.label}, step {attention.step}, {stack}')

  width = (style.WIDTH - 1.4) / len(columns)
  height = width * len(queries) / len(memory) + 0.35
  return style.panels(
    len(rows), len(columns), fill, height, layout='compressed'
  )


def _looks(
  attentions: Sequence[Attention], stack: str
) -> Iterator[tuple[list[Array], str, style.Look]]:
  """Yields weights by example, name and look of each model with the stack.

  A colour stands for a variant, dashes for a step.
  """
  labels = list(dict.fromkeys(one.label for one in attentions))
  steps = sorted({one.step for one in attentions}, reverse=True)
  for one in attentions:
    name, look = one.label, style.look(labels.index(one.label))
    if len(steps) > 1:
      name = f'{name}, step {one.step}'
      dash = style.DASHES[steps.index(one.step) % len(style.DASHES)]
      look = look._replace(linestyle=dash)
    if stack in one.stacks:
      found = [one.weights(stack, n) for n in range(one.examples)]
      yield found, name, look


def _stacks(attentions: Sequence[Attention]) -> list[str]:
  return [name for name in SIDES if any(name in a.stacks for a in attentions)]


def _layers(
  attentions: Sequence[Attention], layers: Sequence[int] | None
) -> list[int]:
  most = max(stack.layers for a in attentions for stack in a.stacks.values())
  return style.chosen(layers, most)
