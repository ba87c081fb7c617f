"""Tiles of an alignment B, their windows, and pieces of tensors.

B, [batch, heads, length, memory_length], is cut into slabs of some heads and
some queries, and a slab into tiles of some examples. Every tile has all keys.
Only a window of each tile is computed: its queries up to the last token, and
the keys from the first to the last that any of these queries sees. This skips
padding, future tokens and the other sequences of a packed row.

A layout names the four axes of a tensor, one letter each:

    b  examples    h  heads    q  queries    k  keys    .  anything else
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

_TILE = 2**20  # entries of B in a tile: 4 MB
_MOST_TILES = 48  # per layer; beyond that, tiles grow
# Windows start and end at multiples of a step. The number of steps per row is
# limited because the CPU's math library prepares a product for each size.
_LEAST_STEP = 32
_MOST_STEPS = 16
# The columns of a table of windows: 0, -1, the first query of the block, the
# sizes of the window, its first key, and what is left of the block after it.
_ZERO, _ALL, _BLOCK, _QUERIES, _KEYS, _START, _REST, _AFTER = range(8)


class Tile(NamedTuple):
  """Indices of a tile's group of examples, group of heads, and block."""

  examples: int
  heads: int
  block: int


class Tiling:
  """The sizes and numbers of tiles of an alignment.

  Attributes:
    groups: the number of groups of examples ('b') and of heads ('h'), and of
      blocks of queries ('q').
    queries: number of queries in a block.
    keys: number of keys.
  """

  def __init__(
    self, shape: Sequence[int], by_queries: bool, single: bool = False
  ) -> None:
    """Chooses the size of a tile.

    A tile has several examples only if it has all heads, and parts of the
    queries of several heads only with `by_queries`. Otherwise, pieces are
    contiguous in memory and need no copy.

    Args:
      shape: [batch, heads, length, memory_length].
      by_queries: whether to cut the queries rather than the heads, because
        blocks of queries have different windows.
      single: whether to make a single tile.
    """
    batch, heads, length, self.keys = shape
    most = batch * heads * length
    rows = most if single else max(_TILE // self.keys, most // _MOST_TILES, 1)
    examples = _divisor(batch, rows // (heads * length))
    if batch // examples > 2 * _MOST_TILES:  # batch has few divisors
      examples = batch
    together = heads if by_queries else _divisor(heads, rows // length)
    fewest = min(-(-length * together // rows), length)
    more = (n for n in range(fewest, 2 * fewest) if length % n == 0)
    blocks = next(more, 0)
    if not blocks:  # the length has few divisors: cut the heads, too
      blocks = _divisor(length, fewest)
      together = _divisor(together, rows // (length // blocks))
    self.groups = {'b': batch // examples, 'h': heads // together, 'q': blocks}
    self.queries = length // blocks

  @property
  def slabs(self) -> list[list[Tile]]:
    examples, heads, blocks = self.groups.values()
    return [
      [Tile(n, h, block) for n in range(examples)]
      for h in range(heads)
      for block in range(blocks)
    ]


class Windows:
  """The visible windows of tiles, found together to keep the graph small."""

  def __init__(self, tiling: Tiling, masks: 'Sequence[Pieces]') -> None:
    """Finds the windows.

    Masks are nonzero at visible keys, or at tokens if a mask has no axis of
    keys.
    """
    pairs = [x.by_tiles() for x in masks if x.layout[3] == 'k']
    tokens = [x.by_tiles() for x in masks if x.layout[3] != 'k']
    start, stop, last = 0, tiling.keys, tiling.queries
    step = max(_LEAST_STEP, tiling.keys // _MOST_STEPS)
    if pairs:
      seen = functools.reduce(tf.logical_and, pairs)
      if seen.shape[3] > 1:
        seen = functools.reduce(tf.logical_and, tokens, seen)
      start, stop = _ends(tf.reduce_any(seen, axis=[1, 3]), step)
    if tokens:
      are_tokens = functools.reduce(tf.logical_and, tokens)
      _, last = _ends(tf.reduce_any(are_tokens, axis=[1, 4]), step)
    self._blocks = tiling.groups['q']
    shape = [tiling.groups['b'], self._blocks]
    columns = [
      0,
      -1,
      tf.range(self._blocks) * tiling.queries,
      last,
      stop - start,
      start,
      tiling.queries - last,
      tiling.keys - stop,
    ]
    table = tf.stack([tf.broadcast_to(x, shape) for x in columns], axis=2)
    self._table = tf.reshape(table, [-1, len(columns)])
    self._rows: dict[Any, list[tf.Tensor]] = {}

  def view(
    self, tile: Tile, x: tf.Tensor, layout: str, in_blocks: bool = False
  ) -> tf.Tensor:
    """Returns a tile's window of x, which has one block of queries or all.

    An axis of size 1 stays as it is.
    """
    shape = x.shape.as_list()
    layout = ''.join(
      a if n != 1 else '.' for a, n in zip(layout, shape, strict=True)
    )
    starts = {'q': _BLOCK if in_blocks else _ZERO, 'k': _START}
    begin = self._of_tile(tile, layout, starts, _ZERO)
    size = self._of_tile(tile, layout, {'q': _QUERIES, 'k': _KEYS}, _ALL)
    y = tf.slice(x, begin, size)
    y.set_shape(
      [None if a in 'qk' else n for a, n in zip(layout, shape, strict=True)]
    )
    return y

  def put(
    self, tile: Tile, x: tf.Tensor, layout: str, shape: Sequence[int]
  ) -> tf.Tensor:
    """Pads a tile's window with zeros to a tensor of this shape."""
    around = {'q': (_ZERO, _REST), 'k': (_START, _AFTER)}
    y = tf.pad(x, self._of_tile(tile, layout, around, (_ZERO, _ZERO)))
    y.set_shape(shape)
    return y

  def _of_tile(
    self, tile: Tile, layout: str, of_axis: dict[str, Any], otherwise: Any
  ) -> tf.Tensor:
    """Returns a column of the table, or several, for each axis of a layout."""
    columns = tuple(of_axis.get(a, otherwise) for a in layout)
    if columns not in self._rows:
      self._rows[columns] = tf.unstack(tf.gather(self._table, columns, axis=1))
    return self._rows[columns][tile.examples * self._blocks + tile.block]


class Pieces:
  """A tensor cut into the pieces that tiles read, or add to.

  `windows` are the parts of the tiles that are computed; None stands for whole
  tiles.

  Attributes:
    layout: the layout of the tensor and its pieces, 'bh' and two more axes.
    number: the number of pieces.
    piece: the shape of a piece.
  """

  def __init__(
    self,
    tiling: Tiling,
    shape: Sequence[int],
    layout: str,
    x: tf.Tensor | None = None,
  ) -> None:
    """Cuts a shape; along an axis of size 1, all tiles share a piece.

    Without x, which may have any shape of this size, pieces can be added to
    but not read.
    """
    self.layout = layout
    self._shape = shape if x is None else x.shape
    self._x = x
    cut = [*shape[:2], shape[2] if layout[2] == 'q' else 1]
    self._groups = [
      min(n, m) for n, m in zip(tiling.groups.values(), cut, strict=True)
    ]
    self.number = math.prod(self._groups)
    self.piece = [
      n // m for n, m in zip(shape, [*self._groups, 1], strict=True)
    ]
    # A block of queries is contiguous within one head, but not across heads.
    is_one_head = self.piece[:2] == [1, 1]
    self._in_part = 1 if is_one_head else self._groups[2]
    self._sums: dict[int, tf.Tensor] = {}

  @functools.cached_property
  def _parts(self) -> list[tf.Tensor]:
    """Contiguous parts: single pieces, or all blocks of some heads."""
    examples, heads, rows, columns = self.piece
    shape = [-1, examples, heads, rows * self._in_part, columns]
    return tf.unstack(tf.reshape(self._x, shape))

  def _index(self, tile: Tile) -> int:
    return int(np.ravel_multi_index(tile, self._groups, mode='clip'))

  def take(self, tile: Tile, windows: Windows | None) -> tf.Tensor:
    x = self._parts[self._index(tile) // self._in_part]
    if windows:
      return windows.view(tile, x, self.layout, in_blocks=self._in_part > 1)
    if self._in_part == 1:
      return x
    return tf.slice(x, [0, 0, tile.block * self.piece[2], 0], self.piece)

  def add(self, x: tf.Tensor, tile: Tile, windows: Windows | None) -> tf.Tensor:
    """Adds the window of a tile to its piece; returns the sum so far.

    Sums over examples, heads, queries or keys where the piece has a single
    entry for all of them.
    """
    sizes = zip(x.shape.as_list(), self.piece, strict=True)
    axes = [i for i, (n, whole) in enumerate(sizes) if whole == 1 != n]
    if axes:
      x = tf.reduce_sum(x, axes, keepdims=True)
    if windows:
      x = windows.put(tile, x, self.layout, self.piece)
    at = self._index(tile)
    self._sums[at] = self._sums[at] + x if at in self._sums else x
    return self._sums[at]

  def total(self) -> tf.Tensor:
    """Returns the whole tensor, in the shape of x if there is one."""
    x = self._sums[0]
    if self.number > 1:
      # Unlike tf.zeros, Empty is never folded into a constant or merged with
      # another one of the same shape. It is made once there is a piece.
      with tf.control_dependencies([x]):
        x = tf.raw_ops.Empty(shape=[self.number, *self.piece], dtype=x.dtype)
      for at, piece in self._sums.items():
        x = tf.raw_ops.InplaceUpdate(x=x, i=[at], v=piece[tf.newaxis])
    x = tf.reshape(x, [*self._groups, *self.piece])
    x = tf.transpose(x, [0, 3, 1, 4, 2, 5, 6])  # each group before its axis
    return tf.reshape(x, self._shape)

  def by_tiles(self) -> tf.Tensor:
    """Returns a mask, [groups of examples, examples, blocks, queries, keys]."""
    examples, _, rows, columns = self.piece
    number, _, blocks = self._groups
    x = tf.reshape(self._x, [number, examples, blocks, rows, columns])
    return tf.cast(x, tf.bool)


def _ends(where: tf.Tensor, step: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the range of true rows in steps; the first step if none are."""
  n = where.shape[-1]
  numbers = tf.range(n)
  last = tf.reduce_max(tf.where_v2(where, numbers, 0), axis=-1)
  first = tf.reduce_min(tf.where_v2(where, numbers, n), axis=-1)
  first = tf.minimum(first, last) // step * step
  return first, tf.minimum((last // step + 1) * step, n)


def _divisor(n: int, most: int) -> int:
  """Returns the largest divisor of n that is at most `most`, or 1."""
  return next((d for d in range(min(n, most), 1, -1) if n % d == 0), 1)
