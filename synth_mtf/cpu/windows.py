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


class Windows:
  """What is computed of tiles: their first queries, and some keys in a row.

  All windows are found together, so that the graph stays small.
  """

  def __init__(
    self, blocks: int, queries: Size, start: Size, keys: Size, number: int
  ) -> None:
    """Creates windows.

    Args:
      blocks: how many blocks of queries there are.
      queries: how many each window has, int32 [number, 1], or one for all.
      start: its first key, likewise.
      keys: how many it has, likewise.
      number: of windows: blocks of the first examples, of the next ones, ...
    """
    self._number = number
    self._block = tf.constant([[i % blocks] for i in range(number)])
    self._ranges: dict[Axis, tuple[Size, Size]] = {
      Axis.QUERIES: (0, queries),
      Axis.KEYS: (start, keys),
    }
    self._known: dict[Hashable, Any] = {}

  def bounds(
    self, layout: Layout, rows: int
  ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Where each window begins in memory, and its size; -1 is all there is.

    Args:
      layout: of the tensor.
      rows: from one block to the next.
    """

    def make() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
      ranges = [self._ranges[x] if x else (0, -1) for x in layout.axes]
      begin, size = map(list, zip(*ranges))
      if rows:
        begin[layout.axes.index(Axis.QUERIES)] = self._block * rows
      return self._vectors(begin), self._vectors(size)

    return self._once((layout, rows), make)

  def around(self, layout: Layout, shape: tuple[int, ...]) -> list[tf.Tensor]:
    """What each window leaves out before and after it, [4, 2]."""

    def make() -> list[tf.Tensor]:
      numbers: list[Size] = []
      for axis, whole in zip(layout.axes, shape):
        at, n = self._ranges[axis] if axis else (0, whole)
        numbers += [at, whole - at - n]
      return self._vectors(numbers, [4, 2])

    return self._once((layout, shape), make)

  def _vectors(
    self, numbers: Sequence[Size], shape: Sequence[int] = (4,)
  ) -> list[tf.Tensor]:
    """These numbers for each window, in few operations."""
    rows = tf.constant([x if isinstance(x, int) else 0 for x in numbers])
    varying = [i for i, x in enumerate(numbers) if not isinstance(x, int)]
    if not varying:
      return [tf.reshape(rows, shape)] * self._number
    for i in varying:
      column = [int(i == j) for j in range(len(numbers))]
      rows += numbers[i] * tf.constant(column)
    return tf.unstack(tf.reshape(rows, [self._number, *shape]))

  def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:
    if key not in self._known:
      self._known[key] = make()
    return self._known[key]


class Window:
  """The window of a tile."""

  def __init__(self, windows: Windows, at: int) -> None:
    """One of several windows."""
    self._windows = windows
    self._at = at

  def view(self, x: tf.Tensor, layout: Layout, rows: int = 0) -> tf.Tensor:
    """The window of a tensor.

    Args:
      x: as it lies in memory.
      layout: how that is.
      rows: from one block of queries to the next; 0: x has one of them only.
    """
    if not any(layout.axes):
      return x
    begin, size = self._windows.bounds(layout, rows)
    y = tf.slice(x, begin[self._at], size[self._at])
    sizes = zip(layout.axes, x.shape)
    y.set_shape([None if axis else n for axis, n in sizes])
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
    if not any(layout.axes):
      return x
    around = self._windows.around(layout, tuple(shape))
    y = tf.pad(x, around[self._at])
    y.set_shape(shape)
    return y


class Whole(Window):
  """The window of a tile that has all of it."""

  def __init__(self, block: int, queries: int) -> None:
    """Creates a window.

    Args:
      block: which block of queries it is.
      queries: how many it has.
    """
    self._block = block
    self._queries = queries

  def view(self, x: tf.Tensor, layout: Layout, rows: int = 0) -> tf.Tensor:
    """The block of a tensor."""
    if not rows:
      return x
    at = layout.axes.index(Axis.QUERIES)
    begin, size = [0] * 4, [-1] * 4
    begin[at], size[at] = self._block * rows, self._queries
    return tf.slice(x, begin, size)

  def put(
    self, x: tf.Tensor, layout: Layout, shape: Sequence[int]
  ) -> tf.Tensor:
    """It is whole already."""
    del layout, shape
    return x


def find(
  seen: Sequence[tf.Tensor],
  tokens: Sequence[tf.Tensor],
  examples: int,
  blocks: int,
  queries: int,
  keys: int,
) -> Windows:
  """The windows of all tiles.

  Masks are bool, [groups of examples, examples, blocks, queries, keys], with
  size 1 where they do not depend on something.

  Args:
    seen: which keys are seen: by a query where all masks agree. A token that
      sees nothing averages over all keys, as in the host, so that its window
      has all of them.
    tokens: which queries are tokens, [..., queries, 1].
    examples: the number of groups.
    blocks: likewise.
    queries: how many a block has.
    keys: how many there are.
  """
  start, stop, last = 0, keys, queries

  def ends(where: tf.Tensor) -> list[tf.Tensor]:
    return [
      tf.reshape(tf.broadcast_to(x, [examples, blocks]), [-1, 1])
      for x in _ends(where, keys)
    ]

  if seen:
    pairs = functools.reduce(tf.logical_and, seen)
    some = tf.reduce_any(pairs, axis=4, keepdims=True)
    pairs = tf.logical_or(pairs, tf.logical_not(some))
    if pairs.shape[3] > 1:
      pairs = functools.reduce(tf.logical_and, tokens, pairs)
    start, stop = ends(tf.reduce_any(pairs, axis=[1, 3]))
  if tokens:
    is_token = functools.reduce(tf.logical_and, tokens)
    _, last = ends(tf.reduce_any(is_token, axis=[1, 4]))
  return Windows(blocks, last, start, stop - start, examples * blocks)


def _ends(where: tf.Tensor, keys: int) -> tuple[tf.Tensor, tf.Tensor]:
  """From where to where rows are true, by steps; the first one, if nowhere."""
  step = max(_LEAST_STEP, keys // _MOST_STEPS)
  n = where.shape[-1]
  numbers = tf.range(n)
  last = tf.reduce_max(tf.where_v2(where, numbers, 0), axis=-1)
  first = tf.reduce_min(tf.where_v2(where, numbers, n), axis=-1)
  first = tf.minimum(first, last) // step * step
  return first, tf.minimum((last // step + 1) * step, n)
