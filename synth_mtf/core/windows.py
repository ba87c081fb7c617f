"""What of a tile of an alignment is seen, and so computed.

A tile's window is its queries up to the last token, and the keys from the first
to the last that any of them sees; what is left out is padding, the future and
other sequences of the row.
"""

import enum
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Optional, TypeVar, Union

import tensorflow.compat.v1 as tf

# Windows begin and end at multiples of a step, of which a row has at most so
# many: the processor's library prepares a product once for each of its sizes.
_LEAST_STEP = 32
_MOST_STEPS = 16

Size = Union[int, tf.Tensor]
_T = TypeVar('_T')


class Axis(enum.Enum):
  """What rows or columns are, if a tile does not have all of them."""

  QUERIES = enum.auto()
  KEYS = enum.auto()


class Layout(NamedTuple):
  """How a tensor over [batch, heads, rows, columns] lies in memory.

  Attributes:
    rows: what they are.
    columns: likewise.
    heads_last: whether it is [batch, rows, columns, heads] there, as what is
      read by index is. It is transposed tile by tile.
  """

  rows: Optional[Axis]
  columns: Optional[Axis]
  heads_last: bool = False

  @property
  def axes(self) -> list[Optional[Axis]]:
    """What each axis in memory is."""
    return self.stored([None, None, self.rows, self.columns])

  def stored(self, of: Sequence[_T]) -> list[_T]:
    """Puts what belongs to batch, heads, rows and columns as they lie there."""
    batch, heads, rows, columns = of
    if self.heads_last:
      return [batch, rows, columns, heads]
    return [batch, heads, rows, columns]

  def named(self, of: Sequence[_T]) -> list[_T]:
    """The reverse."""
    if self.heads_last:
      batch, rows, columns, heads = of
      return [batch, heads, rows, columns]
    return list(of)

  def load(self, x: tf.Tensor) -> tf.Tensor:
    """A tensor out of memory, as [batch, heads, rows, columns]."""
    return tf.transpose(x, self.named(range(4))) if self.heads_last else x

  def store(self, x: tf.Tensor) -> tf.Tensor:
    """The reverse."""
    return tf.transpose(x, self.stored(range(4))) if self.heads_last else x


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
      x: as it lies in memory.
      layout: how that is.
      first_query: the row of the tile's first query.
    """
    ranges = [
      self._ranges[axis] if axis else (0, n)
      for axis, n in zip(layout.axes, _shape(x))
    ]
    shape = [n if isinstance(n, int) else None for _, n in ranges]
    if shape == _shape(x):
      return x

    def bounds() -> tuple[tf.Tensor, tf.Tensor]:
      begin, size = map(list, zip(*ranges))
      if layout.rows:
        begin[layout.axes.index(layout.rows)] += first_query
      return tf.stack(begin), tf.stack(size)

    key = layout, first_query, *shape
    y = tf.slice(x, *self._once(key, bounds))
    y.set_shape(shape)
    return y

  def put(
    self, x: tf.Tensor, layout: Layout, shape: Sequence[int]
  ) -> tf.Tensor:
    """The tensor of this shape whose window is x, and which is 0 elsewhere.

    Args:
      x: as it lies in memory.
      layout: how that is.
      shape: that of the result there.
    """
    if _shape(x) == list(shape):
      return x

    def around() -> tf.Tensor:
      ranges = (self._ranges.get(axis) for axis in layout.axes)
      return tf.stack(
        [
          [of[0], n - of[0] - of[1]] if of else [0, 0]
          for of, n in zip(ranges, shape)
        ]
      )

    y = tf.pad(x, self._once((layout, *shape), around))
    y.set_shape(shape)
    return y

  def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:
    """What all tensors of a kind share, so that the graph stays small."""
    if key not in self._known:
      self._known[key] = make()
    return self._known[key]


def find(masks: Sequence[tf.Tensor], queries: int, keys: int) -> Window:
  """The window of a tile; all of it without masks.

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


def _shape(x: tf.Tensor) -> list[Optional[int]]:
  return x.shape.as_list()
