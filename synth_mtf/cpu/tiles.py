"""Tiles of an alignment B, their windows, and pieces of tensors.

B, [batch, heads, length, memory_length], is cut into slabs of some heads and
some queries, and a slab into tiles of some examples. Every tile has all keys.
Only a window of each tile is computed: its queries up to the last token, and
the keys from the first to the last that any of these queries sees. This skips
padding, future tokens and the other sequences of a packed row.

A layout names the four axes of a tensor, one letter each:

    b  examples    h  heads    q  queries    k  keys    .  anything else
"""

import enum
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


class Tile(NamedTuple):
  """Indices of a tile's group of examples, group of heads, and block."""

  examples: int
  heads: int
  block: int


class Groups(NamedTuple):
  """Numbers of groups of examples, groups of heads, and blocks of queries."""

  examples: int
  heads: int
  blocks: int


class Tiling:
  """The sizes and numbers of tiles of an alignment.

  Attributes:
    groups: the number of tiles along each axis.
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
    all_rows = batch * heads * length
    if single:
      rows = all_rows
    else:
      rows = max(_TILE // self.keys, all_rows // _MOST_TILES, 1)
    tile_examples = _divisor(batch, rows // (heads * length))
    if batch // tile_examples > 2 * _MOST_TILES:  # batch has few divisors
      tile_examples = batch
    tile_heads = heads if by_queries else _divisor(heads, rows // length)
    fewest_blocks = min(math.ceil(length * tile_heads / rows), length)
    blocks = _divisor_from(length, fewest_blocks)
    if blocks is None:  # the length has few divisors: cut the heads, too
      blocks = _divisor(length, fewest_blocks)
      tile_heads = _divisor(tile_heads, rows // (length // blocks))
    self.groups = Groups(batch // tile_examples, heads // tile_heads, blocks)
    self.queries = length // blocks

  @property
  def slabs(self) -> list[list[Tile]]:
    slabs = []
    for heads in range(self.groups.heads):
      for block in range(self.groups.blocks):
        examples = range(self.groups.examples)
        slabs.append([Tile(n, heads, block) for n in examples])
    return slabs


class _Column(enum.IntEnum):
  """The columns of a table of windows, which has a row for each tile.

  The first two are for an axis that the window leaves whole.
  """

  NOTHING = 0  # 0, the start of such an axis, and what is left around it
  WHOLE = 1  # -1, its size
  BLOCK = 2  # the first query of the block
  QUERIES = 3  # number of queries in the window
  KEYS = 4  # number of keys in the window
  FIRST_KEY = 5  # of the window
  QUERIES_AFTER = 6  # number of queries of the block after the window
  KEYS_AFTER = 7  # number of keys after the window


class Windows:
  """The visible windows of tiles, found together to keep the graph small."""

  def __init__(self, tiling: Tiling, masks: 'Sequence[Pieces]') -> None:
    """Finds the windows.

    Masks are nonzero at visible keys, or at tokens if a mask has no axis of
    keys.
    """
    pairs = [x.by_tiles() for x in masks if x.layout[3] == 'k']
    tokens = [x.by_tiles() for x in masks if x.layout[3] != 'k']
    start = 0
    stop = tiling.keys
    queries = tiling.queries
    step = max(_LEAST_STEP, tiling.keys // _MOST_STEPS)
    if pairs:
      seen = functools.reduce(tf.logical_and, pairs)
      if seen.shape[3] > 1:
        seen = functools.reduce(tf.logical_and, tokens, seen)
      start, stop = _ends(tf.reduce_any(seen, axis=[1, 3]), step)
    if tokens:
      are_tokens = functools.reduce(tf.logical_and, tokens)
      _, queries = _ends(tf.reduce_any(are_tokens, axis=[1, 4]), step)
    self._blocks = tiling.groups.blocks
    columns = {
      _Column.NOTHING: 0,
      _Column.WHOLE: -1,
      _Column.BLOCK: tf.range(self._blocks) * tiling.queries,
      _Column.QUERIES: queries,
      _Column.KEYS: stop - start,
      _Column.FIRST_KEY: start,
      _Column.QUERIES_AFTER: tiling.queries - queries,
      _Column.KEYS_AFTER: tiling.keys - stop,
    }
    shape = [tiling.groups.examples, self._blocks]
    table = tf.stack(
      [tf.broadcast_to(columns[column], shape) for column in _Column], axis=2
    )
    self._table = tf.reshape(table, [-1, len(_Column)])
    self._rows: dict[Any, list[tf.Tensor]] = {}

  def view(
    self, tile: Tile, x: tf.Tensor, layout: str, in_blocks: bool = False
  ) -> tf.Tensor:
    """Returns a tile's window of x, which has one block of queries or all.

    An axis of size 1 stays as it is.
    """
    starts = []
    sizes = []
    shape: list[int | None] = []
    for axis, size in zip(layout, x.shape.as_list(), strict=True):
      if axis == 'q' and size != 1:
        starts.append(_Column.BLOCK if in_blocks else _Column.NOTHING)
        sizes.append(_Column.QUERIES)
        shape.append(None)
      elif axis == 'k' and size != 1:
        starts.append(_Column.FIRST_KEY)
        sizes.append(_Column.KEYS)
        shape.append(None)
      else:
        starts.append(_Column.NOTHING)
        sizes.append(_Column.WHOLE)
        shape.append(size)
    begin = self._of_tile(tile, tuple(starts))
    y = tf.slice(x, begin, self._of_tile(tile, tuple(sizes)))
    y.set_shape(shape)
    return y

  def put(
    self, tile: Tile, x: tf.Tensor, layout: str, shape: Sequence[int]
  ) -> tf.Tensor:
    """Pads a tile's window with zeros to a tensor of this shape."""
    paddings = []
    for axis in layout:
      if axis == 'q':
        paddings.append((_Column.NOTHING, _Column.QUERIES_AFTER))
      elif axis == 'k':
        paddings.append((_Column.FIRST_KEY, _Column.KEYS_AFTER))
      else:
        paddings.append((_Column.NOTHING, _Column.NOTHING))
    y = tf.pad(x, self._of_tile(tile, tuple(paddings)))
    y.set_shape(shape)
    return y

  def _of_tile(self, tile: Tile, columns: tuple[Any, ...]) -> tf.Tensor:
    """Returns entries of the tile's row of the table, in the shape of columns.

    All tiles share the operation that reads these columns.
    """
    if columns not in self._rows:
      numbers = np.array(columns, np.int32)
      rows = tf.gather(self._table, numbers, axis=1)
      self._rows[columns] = tf.unstack(rows)
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
    examples, heads, rows, columns = shape
    self._groups = Groups(
      examples=min(examples, tiling.groups.examples),
      heads=min(heads, tiling.groups.heads),
      blocks=min(rows, tiling.groups.blocks) if layout[2] == 'q' else 1,
    )
    self.number = math.prod(self._groups)
    self.piece = [
      examples // self._groups.examples,
      heads // self._groups.heads,
      rows // self._groups.blocks,
      columns,
    ]
    # A block of queries is contiguous within one head, but not across heads.
    is_one_head = self.piece[:2] == [1, 1]
    self._blocks_in_part = 1 if is_one_head else self._groups.blocks
    self._sums: dict[int, tf.Tensor] = {}

  @functools.cached_property
  def _parts(self) -> list[tf.Tensor]:
    """Contiguous parts: single pieces, or all blocks of some heads."""
    examples, heads, rows, columns = self.piece
    shape = [-1, examples, heads, rows * self._blocks_in_part, columns]
    return tf.unstack(tf.reshape(self._x, shape))

  def _index(self, tile: Tile) -> int:
    return int(np.ravel_multi_index(tile, self._groups, mode='clip'))

  def take(self, tile: Tile, windows: Windows | None) -> tf.Tensor:
    """Returns the piece that a tile reads, or its window of the piece."""
    part = self._parts[self._index(tile) // self._blocks_in_part]
    in_blocks = self._blocks_in_part > 1
    if windows:
      return windows.view(tile, part, self.layout, in_blocks)
    if in_blocks:
      return tf.slice(part, [0, 0, tile.block * self.piece[2], 0], self.piece)
    return part

  def add(self, x: tf.Tensor, tile: Tile, windows: Windows | None) -> tf.Tensor:
    """Adds the window of a tile to its piece; returns the sum so far.

    Sums over examples, heads, queries or keys where the piece has a single
    entry for all of them.
    """
    sizes = zip(x.shape.as_list(), self.piece, strict=True)
    summed = [axis for axis, (n, m) in enumerate(sizes) if m == 1 and n != 1]
    if summed:
      x = tf.reduce_sum(x, summed, keepdims=True)
    if windows:
      x = windows.put(tile, x, self.layout, self.piece)
    index = self._index(tile)
    if index in self._sums:
      x = self._sums[index] + x
    self._sums[index] = x
    return x

  def total(self) -> tf.Tensor:
    """Returns the whole tensor, in the shape of x if there is one."""
    x = self._sums[0]
    if self.number > 1:
      # Unlike tf.zeros, Empty is never folded into a constant or merged with
      # another one of the same shape. It is made once there is a piece.
      with tf.control_dependencies([x]):
        x = tf.raw_ops.Empty(shape=[self.number, *self.piece], dtype=x.dtype)
      for index, piece in self._sums.items():
        x = tf.raw_ops.InplaceUpdate(x=x, i=[index], v=piece[tf.newaxis])
    x = tf.reshape(x, [*self._groups, *self.piece])
    x = tf.transpose(x, [0, 3, 1, 4, 2, 5, 6])  # each group before its axis
    return tf.reshape(x, self._shape)

  def by_tiles(self) -> tf.Tensor:
    """Returns a mask, [groups of examples, examples, blocks, queries, keys]."""
    examples, _, rows, columns = self.piece
    shape = [
      self._groups.examples,
      examples,
      self._groups.blocks,
      rows,
      columns,
    ]
    return tf.cast(tf.reshape(self._x, shape), tf.bool)


def _ends(where: tf.Tensor, step: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the range of true entries in steps; the first step if none are."""
  n = where.shape[-1]
  numbers = tf.range(n)
  last = tf.reduce_max(tf.where_v2(where, numbers, 0), axis=-1)
  first = tf.reduce_min(tf.where_v2(where, numbers, n), axis=-1)
  first = tf.minimum(first, last) // step * step
  return first, tf.minimum((last // step + 1) * step, n)


def _divisor(n: int, most: int) -> int:
  """Returns the largest divisor of n that is at most `most`, or 1."""
  for divisor in range(min(n, most), 1, -1):
    if n % divisor == 0:
      return divisor
  return 1


def _divisor_from(n: int, least: int) -> int | None:
  """Returns the smallest divisor of n from `least` to twice that, if any."""
  for divisor in range(least, 2 * least):
    if n % divisor == 0:
      return divisor
  return None
