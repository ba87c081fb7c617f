"""What of a tile of an alignment is seen, and so computed.

A tile's window is its queries up to the last token, and the keys from the first
to the last that any of them sees; what is left out is padding, the future and
other sequences of the row.
"""

import enum
import functools
from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

import tensorflow.compat.v1 as tf

# Windows begin and end at multiples of a step, of which a row has at most so
# many: the processor's library prepares a product once for each of its sizes.
_LEAST_STEP = 32
_MOST_STEPS = 16

Size = Union[int, tf.Tensor]


class Axis(enum.Enum):
  """What rows or columns are, if a tile does not have all of them."""

  QUERIES = enum.auto()
  KEYS = enum.auto()


class Layout(NamedTuple):
  """What the last two axes of [batch, heads, rows, columns] are."""

  rows: Optional[Axis]
  columns: Optional[Axis]


ALIGNMENT = Layout(Axis.QUERIES, Axis.KEYS)


class Window(NamedTuple):
  """What is computed of a tile: its first queries, and some keys in a row."""

  queries: Size
  start: Size
  keys: Size

  def of(self, axis: Axis) -> tuple[Size, Size]:
    """The first entry along an axis, and how many there are."""
    return {
      Axis.QUERIES: (0, self.queries),
      Axis.KEYS: (self.start, self.keys),
    }[axis]


def find(masks: Sequence[tf.Tensor], queries: int, keys: int) -> Window:
  """The window of a tile.

  Args:
    masks: bool, [batch, 1, rows, columns] each: which keys are seen, by each
      query or (one row) by all, and (one column) which queries are tokens. A
      token that sees nothing averages over all keys, as in the host, so that
      its window has all of them.
    queries: how many the tile has.
    keys: likewise.
  """
  seen = [x for x in masks if x.shape[3] > 1]
  tokens = [x for x in masks if x.shape[3] == 1]
  step = max(_LEAST_STEP, keys // _MOST_STEPS)
  window = Window(queries, 0, keys)
  if seen:
    pairs = functools.reduce(tf.logical_and, seen)
    some = tf.reduce_any(pairs, axis=3, keepdims=True)
    pairs = tf.logical_or(pairs, tf.logical_not(some))
    if pairs.shape[2] > 1:
      pairs = functools.reduce(tf.logical_and, tokens, pairs)
    start, stop = _ends(tf.reduce_any(pairs, axis=[0, 1, 2]), step)
    window = window._replace(start=start, keys=stop - start)
  if tokens:
    is_token = functools.reduce(tf.logical_and, tokens)
    _, stop = _ends(tf.reduce_any(is_token, axis=[0, 1, 3]), step)
    window = window._replace(queries=stop)
  return window


def view(
  x: tf.Tensor, layout: Layout, window: Optional[Window], first_query: int = 0
) -> tf.Tensor:
  """The window of a tile; all of it, if there is none.

  Args:
    x: [batch, heads, rows, columns].
    layout: what rows and columns are.
    window: the queries and keys.
    first_query: the row of the first query.
  """
  if window is None:
    return x
  begin: list[Size] = [0, 0, 0, 0]
  size: list[Size] = x.shape.as_list()
  for i, axis in enumerate(layout, start=2):
    if axis:
      begin[i], size[i] = window.of(axis)
    if axis is Axis.QUERIES:
      begin[i] = first_query
  static = [n if isinstance(n, int) else None for n in size]
  if static == x.shape.as_list():
    return x
  y = tf.slice(x, begin, size)
  y.set_shape(static)
  return y


def _ends(where: tf.Tensor, step: int) -> tuple[tf.Tensor, tf.Tensor]:
  """From where to where a row is true, by steps; the first one, if nowhere."""
  n = where.shape[0]
  numbers = tf.range(n)
  last = tf.reduce_max(tf.where_v2(where, numbers, 0))
  first = tf.minimum(tf.reduce_min(tf.where_v2(where, numbers, n)), last)
  return first // step * step, tf.minimum((last // step + 1) * step, n)
