"""Tiles of an alignment B, their windows, and pieces of tensors.

B, [batch, heads, length, memory_length], is cut into slabs of some heads and
some queries, and a slab into tiles of some examples. Every tile has all keys.
Only a window of each tile is computed: its queries up to the last token, and
the keys from the first to the last that any of these queries sees. This skips
padding, future tokens and the other sequences of a packed row.

A layout names the axes of a tensor in memory, one letter each:

    b  examples    h  heads    q  queries    k  keys    .  anything else
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

_TILE = 2**20  # entries of B in a tile: 4 MB
_MOST_TILES = 48  # per layer; beyond that, tiles grow
_LARGE = 16  # tiles; larger gradients are filled in place, not stacked
# Windows start and end at multiples of a step. The number of steps per row is
# limited because the CPU's math library prepares a product for each size.
_LEAST_STEP = 32
_MOST_STEPS = 16
# The columns of a table of windows: 1, and the number of the block, the number
# of queries, the first key and the number of keys of each window.
_ONE, _BLOCK, _QUERIES, _START, _KEYS = np.eye(5, dtype=np.int32)


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
    queries: number of queries in a block; the last block may have fewer.
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
    batch, heads, self.queries, self.keys = shape
    self.groups = dict.fromkeys('bhq', 1)
    if single:
      return
    length = self.queries
    rows = max(_TILE // self.keys, batch * heads * length // _MOST_TILES, 1)
    together = _divisor(batch, rows // (heads * length))
    if batch // together <= 2 * _MOST_TILES:  # else batch has few divisors
      self.groups['b'] = batch // together
    together = heads if by_queries else _divisor(heads, rows // length)
    self.groups['h'] = heads // together
    # Use blocks of equal size unless that doubles their number.
    fewest = min(-(-length * together // rows), length)
    equal = [n for n in range(fewest, 2 * fewest) if length % n == 0]
    self.groups['q'] = equal[0] if equal else fewest
    self.queries = -(-length // self.groups['q'])

  @property
  def slabs(self) -> list[list[Tile]]:
    examples, heads, blocks = self.groups.values()
    return [
      [Tile(n, h, block) for n in range(examples)]
      for h in range(heads)
      for block in range(blocks)
    ]


class Windows:
  """The windows of all tiles, computed together to keep the graph small."""

  def __init__(self, tiling: Tiling, seen: Optional[tf.Tensor] = None) -> None:
    """Creates windows; by default, they are whole tiles.

    `seen` has the number of queries, first key and number of keys of each
    window, int32 [windows, 3]: first the blocks of the first group of examples,
    then the blocks of the next group, and so on.
    """
    self._blocks = tiling.groups['q']
    self._is_whole = seen is None
    blocks = np.arange(self._blocks * tiling.groups['b']) % self._blocks
    self._table: Any = np.outer(np.ones_like(blocks), _ONE)
    self._table += np.outer(blocks, _BLOCK)
    if seen is None:
      self._table += tiling.queries * _QUERIES + tiling.keys * _KEYS
    else:
      self._table = tf.concat([np.int32(self._table[:, :2]), seen], axis=1)
    self._known: dict[bytes, Any] = {}

  def view(
    self, tile: Tile, x: tf.Tensor, layout: str, stride: int = 0
  ) -> tf.Tensor:
    """Returns a tile's window of x.

    Blocks of x start `stride` queries apart; 0 if x is a single block.
    """
    if not {'q', 'k'} & set(layout) or (self._is_whole and not stride):
      return x
    begin, size = _ranges(layout, x.shape.as_list(), stride)
    y = tf.slice(x, self._row(tile, begin), self._row(tile, size))
    if not self._is_whole:
      y.set_shape([None if a in 'qk' else n for a, n in zip(layout, x.shape)])
    return y

  def put(
    self, tile: Tile, x: tf.Tensor, layout: str, shape: Sequence[int]
  ) -> tf.Tensor:
    """Pads a tile's window with zeros to a tensor of this shape."""
    if not {'q', 'k'} & set(layout) or self._is_whole:
      return x
    begin, size = _ranges(layout, shape)
    after = np.outer(shape, _ONE).astype(np.int32) - begin - size
    y = tf.pad(x, self._row(tile, np.stack([begin, after], axis=1)))
    y.set_shape(shape)
    return y

  def _row(self, tile: Tile, coefficients: Any) -> Any:
    """Returns linear combinations of the entries of a tile's window."""
    key = coefficients.tobytes()
    if key not in self._known:
      rows = self._table @ coefficients.reshape([-1, len(_ONE)]).T
      self._known[key] = (
        rows.tolist()
        if self._is_whole
        else tf.unstack(tf.reshape(rows, [-1, *coefficients.shape[:-1]]))
      )
    return self._known[key][tile.examples * self._blocks + tile.block]


def _ranges(
  layout: str, shape: Sequence[int], stride: int = 0
) -> tuple[Any, Any]:
  """Returns the coefficients of a window's start and size in each axis."""
  ranges = {'q': (stride * _BLOCK, _QUERIES), 'k': (_START, _KEYS)}
  begin, size = zip(
    *(ranges.get(a) or (0 * _ONE, n * _ONE) for a, n in zip(layout, shape))
  )
  return np.array(begin), np.array(size)


class Pieces:
  """A tensor cut into the pieces that tiles read, or add to.

  Tiles are [batch, heads, rows, columns]. A layout that ends in heads is
  transposed tile by tile; its tiles have all heads.

  Attributes:
    layout: the layout of the tensor and its pieces.
    number: the number of pieces.
    piece: the shape of a piece in memory.
    trained: whether it needs a gradient.
  """

  def __init__(
    self,
    tiling: Tiling,
    shape: Sequence[int],
    layout: str,
    x: Optional[tf.Tensor] = None,
    trained: bool = True,
  ) -> None:
    """Cuts a shape; along an axis of size 1, all tiles share a piece.

    Without x, pieces can be added to but not read.
    """
    self.layout, self.trained = layout, trained
    self._shape = list(shape)
    sizes = dict(zip(layout, shape))
    self._groups = {
      a: n if sizes.get(a, 1) > 1 else 1 for a, n in tiling.groups.items()
    }
    counts = [self._groups.get(a, 1) for a in layout]
    self.number = math.prod(counts)
    self.piece = [-(-n // count) for n, count in zip(shape, counts)]
    # The last block is padded to as many queries as the others have.
    self._filled = [n * count for n, count in zip(self.piece, counts)]
    if x is not None and self._filled != self._shape:
      x = tf.pad(x, [[0, m - n] for m, n in zip(self._filled, self._shape)])
    self._x = x
    # A block of queries is contiguous within one head, but not across heads.
    rows = self.piece[0] * self.piece[layout.index('h')]
    self._in_part = 1 if rows == 1 else self._groups['q']
    self._sums: dict[int, tf.Tensor] = {}
    self._whole: Optional[tf.Tensor] = None

  @functools.cached_property
  def _parts(self) -> list[tf.Tensor]:
    """Contiguous parts: single pieces, or all blocks of some heads."""
    number = self.number // self._in_part
    blocks = {'q': self._in_part}
    shape = [n * blocks.get(a, 1) for a, n in zip(self.layout, self.piece)]
    x = tf.reshape(self._x, [number * shape[0], *shape[1:]])
    return tf.split(x, number) if number > 1 else [x]

  def _index(self, tile: Tile) -> int:
    at = 0
    for n, group in zip(tile, self._groups.values()):
      at = at * group + n % group
    return at

  def take(self, tile: Tile, windows: Windows) -> tf.Tensor:
    stride = self.piece[self.layout.index('q')] if self._in_part > 1 else 0
    x = self._parts[self._index(tile) // self._in_part]
    x = windows.view(tile, x, self.layout, stride)
    return tf.transpose(x, [0, 3, 1, 2]) if self.layout[3] == 'h' else x

  def put(self, x: tf.Tensor, tile: Tile, windows: Windows) -> tf.Tensor:
    """Pads the window of a tile with zeros to a piece.

    Sums over examples, heads, queries or keys where the piece has a single
    entry for all of them.
    """
    if self.layout[3] == 'h':
      x = tf.transpose(x, [0, 2, 3, 1])
    sizes = zip(x.shape.as_list(), self.piece)
    axes = [i for i, (n, whole) in enumerate(sizes) if whole == 1 != n]
    if axes:
      x = tf.reduce_sum(x, axes, keepdims=True)
    return windows.put(tile, x, self.layout, self.piece)

  def add(self, x: tf.Tensor, tile: Tile, windows: Windows) -> tf.Tensor:
    """Adds the window of a tile; returns the sum so far."""
    at = self._index(tile)
    x = self.put(x, tile, windows)
    if at in self._sums:
      x = self._sums[at] + x
    self._sums[at] = x
    shape = [self.number, *self.piece]
    if self.number == 1 or math.prod(shape) <= _LARGE * _TILE:
      return x
    if self._whole is None:
      # Unlike tf.zeros, Empty is never folded into a constant or merged with
      # another one of the same shape.
      self._whole = tf.raw_ops.Empty(shape=shape, dtype=x.dtype)
    self._whole = tf.raw_ops.InplaceUpdate(
      x=self._whole, i=[at], v=x[tf.newaxis]
    )
    return self._whole

  def total(self) -> tf.Tensor:
    cut = [a for a in 'bhq' if a in self.layout]
    groups = [self._groups[a] for a in cut]
    x = self._whole
    if x is None:
      x = tf.stack([x for _, x in sorted(self._sums.items())])
    x = tf.reshape(x, [*groups, *self.piece])
    axes: list[int] = []
    for i, a in enumerate(self.layout, len(cut)):
      axes += [cut.index(a), i] if a in cut else [i]
    x = tf.reshape(tf.transpose(x, axes), self._filled)
    return tf.slice(x, [0, 0, 0, 0], self._shape)

  def by_tiles(self) -> tf.Tensor:
    """Returns a mask, [groups of examples, examples, blocks, queries, keys]."""
    examples, _, rows, columns = self.piece
    number, blocks = self._groups['b'], self._groups['q']
    return tf.reshape(self._x, [number, examples, blocks, rows, columns])


def find_windows(tiling: Tiling, masks: Sequence[Pieces]) -> Windows:
  """Finds the visible window of each tile.

  Masks are nonzero at visible keys, or at tokens if a mask has no axis of keys.
  A token that sees nothing averages over all keys, as in the host, so its
  window covers all keys.
  """
  if not masks:
    return Windows(tiling)
  shape = [tiling.groups['b'], tiling.groups['q']]
  step = max(_LEAST_STEP, tiling.keys // _MOST_STEPS)

  def ends(where: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the range of true rows in steps; the first step if none are."""
    n = where.shape[-1]
    numbers = tf.range(n)
    last = tf.reduce_max(tf.where_v2(where, numbers, 0), axis=-1)
    first = tf.reduce_min(tf.where_v2(where, numbers, n), axis=-1)
    first = tf.minimum(first, last) // step * step
    return first, tf.minimum((last // step + 1) * step, n)

  masked = [(x.layout[3] == 'k', tf.cast(x.by_tiles(), tf.bool)) for x in masks]
  seen = [x for has_keys, x in masked if has_keys]
  tokens = [x for has_keys, x in masked if not has_keys]
  start, stop, last = 0, tiling.keys, tiling.queries
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
  window = [tf.broadcast_to(x, shape) for x in (last, start, stop - start)]
  return Windows(tiling, tf.reshape(tf.stack(window, axis=-1), [-1, 3]))


def _divisor(n: int, most: int) -> int:
  """Returns the largest divisor of n that is at most `most`, or 1."""
  return next((d for d in range(min(n, most), 1, -1) if n % d == 0), 1)
