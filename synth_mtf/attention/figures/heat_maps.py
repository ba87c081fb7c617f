"""Heat maps of attention by layer and head: Figures 4 to 7."""

from collections.abc import Sequence
from typing import Optional

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from synth_mtf.attention.figures.choice import layers_shown
from synth_mtf.attention.file import Array, Attention
from synth_mtf.results.figures import style

WEIGHTS, LOGITS = 'weights', 'logits'
_MOST_HEADS = 4
_MOST_TOKENS = 24  # that can be read beside a map
_MOST_TOKENS_BELOW = 16


def draw(
  attention: Attention,
  stack: str,
  example: int = 0,
  values: str = WEIGHTS,
  layers: Optional[Sequence[int]] = None,
  heads: Optional[Sequence[int]] = None,
) -> Figure:
  """What each query (a row) looks at, by layer and head.

  Args:
    attention: of a model.
    stack: 'encoder', 'decoder' or 'cross'.
    example: which of its texts.
    values: WEIGHTS, or LOGITS for B; where a query may not look, B is blank.
    layers: numbers from 1 on; default: the paper's 1, 3 and 5.
    heads: numbers from 1 on; default: the first four.
  """
  of_stack = attention.stacks[stack]
  shown = [n for n in layers_shown([attention], layers) if n <= of_stack.layers]
  columns = style.chosen(heads, of_stack.heads, 'head') or list(
    range(1, min(_MOST_HEADS, of_stack.heads) + 1)
  )
  maps = _maps(attention, stack, example, values)[
    np.ix_([n - 1 for n in shown], [n - 1 for n in columns])
  ]
  queries, memory = attention.axes(stack, example)
  scale = _scale(maps, values)

  def fill(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    for number, (row, of_layer) in enumerate(zip(axes, maps)):
      for panel, head, one in zip(row, columns, of_layer):
        panel.imshow(one, interpolation='nearest', **scale)
        panel.set_title(f'layer {shown[number]}, head {head}')
        panel.grid(False)
        panel.set_facecolor('0.85')
        _tokens(panel.yaxis, queries, _MOST_TOKENS)
        _tokens(panel.xaxis, memory, _MOST_TOKENS_BELOW, rotation=90)
        if panel is not row[0]:
          panel.tick_params(labelleft=False)
        if number < len(shown) - 1:
          panel.tick_params(labelbottom=False)
    name = 'attention weight' if values == WEIGHTS else 'B'
    panels = [panel for row in axes for panel in row]
    figure.colorbar(panels[0].images[0], ax=panels, label=name, shrink=0.8)
    figure.suptitle(f'{attention.label}, step {attention.step}, {stack}')

  ratio = len(queries) / len(memory)
  width = (style.WIDTH - 1.4) / len(columns)
  height = width * ratio + 0.35
  return style.panels(
    len(shown), len(columns), fill, height, layout='compressed'
  )


def _maps(attention: Attention, stack: str, example: int, values: str) -> Array:
  """[layers, heads, queries, memory], NaN where a query may not look."""
  weights = attention.weights(stack, example)
  if values == WEIGHTS:
    return weights
  return np.where(weights == 0, np.nan, attention.logits(stack, example))


def _scale(maps: Array, values: str) -> dict[str, object]:
  if values == WEIGHTS:
    return {'cmap': 'Blues', 'vmin': 0, 'vmax': float(maps.max())}
  most = float(np.nanmax(np.abs(maps)))
  return {'cmap': 'PuOr', 'vmin': -most, 'vmax': most}


def _tokens(
  axis: Axis, tokens: Sequence[str], most: int, **text: object
) -> None:
  """Names the tokens, if they are few enough to be read."""
  if len(tokens) <= most:
    axis.set_ticks(range(len(tokens)), list(map(_plain, tokens)), **text)
    axis.set_tick_params(length=0, labelsize=6)


def _plain(token: str) -> str:
  """A token that matplotlib shows as it is: `$` would begin a formula."""
  return token.replace('$', r'\$')
