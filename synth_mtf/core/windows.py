"""What of a tile of an alignment is seen, and so computed.

A tile's window is its queries up to the last token, and the keys from the first
to the last that any of them sees; what is left out is padding, the future and
other sequences of the row.
"""

import enum
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Optional, Union

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


class Window:
  """What is computed of a tile: its first queries, and some keys in a row."""

  def __init__(self, queries: Size, start: Size, keys: Size) -> None:
    """Creates a window.

    Args:
      queries: how many.
      start: the first key.
      keys: how many.
    """
    self._ranges: dict[Optional[Axis], tuple[Size, Size]] = {
      Axis.QUERIES: (0, queries),
      Axis.KEYS: (start, keys),
    }
    self._known: dict[Hashable, Any] = {}

  def view(
    self, x: tf.Tensor, layout: Layout, first_query: int = 0
  ) -> tf.Tensor:
    """The window of a tensor.

    Args:
      x: [batch, heads, rows, columns].
      layout: what rows and columns are.
      first_query: the row of the tile's first query.
    """
    if not any(layout):
      return x

    def bounds() -> tuple[tf.Tensor, tf.Tensor]:
      ranges = [self._ranges.get(axis, (0, -1)) for axis in layout]
      (row, column), sizes = zip(*ranges)
      begin = [0, 0, first_query + row, column]
      return tf.stack(begin), tf.stack([-1, -1, *sizes])

    y = tf.slice(x, *self._once((layout, first_query), bounds))
    sizes = [None if axis else n for n, axis in zip(x.shape[2:], layout)]
    y.set_shape([*x.shape[:2], *sizes])
    return y

  def put(
    self, x: tf.Tensor, layout: Layout, shape: Sequence[int]
  ) -> tf.Tensor:
    """The tensor of this shape whose window is x, and which is 0 elsewhere."""
    if not any(layout):
      return x

    def around() -> tf.Tensor:
      paddings: list[list[Size]] = [[0, 0], [0, 0]]
      for axis, whole in zip(layout, shape[2:]):
        at, n = self._ranges.get(axis, (0, whole))
        paddings.append([at, whole - at - n])
      return tf.stack(paddings)

    y = tf.pad(x, self._once((layout, *shape[2:]), around))
    y.set_shape(shape)
    return y

  def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:
    """What all tensors of a kind share, so that the graph stays small."""
    if key not in self._known:
      self._known[key] = make()
    return self._known[key]


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
  start, stop, last = 0, keys, queries
  if seen:
    pairs = functools.reduce(tf.logical_and, seen)
    some = tf.reduce_any(pairs, axis=3, keepdims=True)
    pairs = tf.logical_or(pairs, tf.logical_not(some))
    if pairs.shape[2] > 1:
      pairs = functools.reduce(tf.logical_and, tokens, pairs)
    start, stop = _ends(tf.reduce_any(pairs, axis=[0, 1, 2]), keys)
  if tokens:
    is_token = functools.reduce(tf.logical_and, tokens)
    _, last = _ends(tf.reduce_any(is_token, axis=[0, 1, 3]), keys)
  return Window(last, start, stop - start)


def _ends(where: tf.Tensor, keys: int) -> tuple[tf.Tensor, tf.Tensor]:
  """From where to where a row is true, by steps; the first one, if nowhere."""
  step = max(_LEAST_STEP, keys // _MOST_STEPS)
  n = where.shape[0]
  numbers = tf.range(n)
  last = tf.reduce_max(tf.where_v2(where, numbers, 0))
  first = tf.minimum(tf.reduce_min(tf.where_v2(where, numbers, n)), last)
  return first // step * step, tf.minimum((last // step + 1) * step, n)
