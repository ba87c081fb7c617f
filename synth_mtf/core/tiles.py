"""Tiles of an alignment B, and of all tensors that it is made of.

A slab is some heads and some queries of all examples; a tile is a slab of some
examples, with all keys. What a tile computes is its window: the queries up to
the last token, and the keys that any of them sees. Tensors are

    [batch, heads, rows, columns]

with size 1 where they do not depend on a dimension; rows and columns are
queries, keys or what else there is.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from synth_mtf.core import windows
from synth_mtf.core.windows import Axis, Layout, Size, Window

_TILE = 2**20  # entries of B in a tile, 4 MB
_MOST_TILES = 48  # of a layer; larger tiles rather than more of them
_LARGE = 16  # tiles, from which on a gradient is filled in place


class Tile(NamedTuple):
  """Which group of examples, group of heads and block of queries."""

  examples: int
  heads: int
  block: int


class Tiling:
  """How an alignment is cut.

  Attributes:
    shape: [batch, heads, length, memory_length].
    examples: how many groups of examples there are.
    heads: how many groups of heads.
    blocks: how many blocks of queries.
    queries: how many of them a block has; the last one may have fewer.
  """

  def __init__(self, shape: Sequence[int], by_queries: bool) -> None:
    """Chooses the size of a tile.

    A tile has several examples only if it has all heads, and pieces of several
    heads are cut by queries only if that was asked for: all other pieces lie in
    memory one behind the other, and nothing is copied.

    Args:
      shape: [batch, heads, length, memory_length].
      by_queries: whether blocks of queries go before groups of heads, since
        their windows differ.
    """
    self.shape = list(shape)
    batch, heads, length, memory_length = shape
    rows = max(_TILE // memory_length, batch * heads * length // _MOST_TILES, 1)
    in_tile = _divisor(batch, rows // (heads * length))
    self.examples = batch // in_tile
    in_tile = heads if by_queries else _divisor(heads, rows // length)
    self.heads = heads // in_tile
    # As many blocks as divide the queries, if less than twice as many will do.
    fewest = min(-(-length * in_tile // rows), length)
    numbers = range(fewest, 2 * fewest)
    blocks = next((n for n in numbers if length % n == 0), fewest)
    self.queries = -(-length // blocks)
    self.blocks = -(-length // self.queries)

  @property
  def slabs(self) -> Iterator[list[Tile]]:
    """The tiles of each slab: all examples of some heads and queries."""
    for heads, block in itertools.product(
      range(self.heads), range(self.blocks)
    ):
      yield [Tile(n, heads, block) for n in range(self.examples)]

  def rows(self, tile: Tile) -> int:
    """How many queries the block of a tile has."""
    return min(self.queries, self.shape[2] - tile.block * self.queries)

  def windows(self, masks: Sequence['Input']) -> dict[Tile, Optional[Window]]:
    """The window of each tile, which is that of all heads; None without masks.

    Args:
      masks: what is seen; see `windows.find`.
    """
    found: dict[Tile, Optional[Window]] = {}
    for tile in itertools.chain(*self.slabs):
      any_head = tile._replace(heads=0)
      if any_head not in found:
        found[any_head] = (
          windows.find(
            [tf.cast(mask.take(tile), tf.bool) for mask in masks],
            self.rows(tile),
            self.shape[3],
          )
          if masks
          else None
        )
      found[tile] = found[any_head]
    return found


class Pieces:
  """A tensor, [batch, heads, rows, columns], as its tiles take it.

  Attributes:
    number: how many pieces there are.
  """

  def __init__(
    self, tiling: Tiling, shape: Sequence[int], layout: Layout
  ) -> None:
    """Cuts a shape.

    Args:
      tiling: the tiles.
      shape: that of the tensor; one example is for all, and so is one head.
      layout: what its rows and columns are.
    """
    self._tiling = tiling
    self._shape = list(shape)
    self._layout = layout
    batch, heads, rows, columns = shape
    self._examples = tiling.examples if batch > 1 else 1
    self._heads = tiling.heads if heads > 1 else 1
    self._blocks = tiling.blocks if layout.rows is Axis.QUERIES else 1
    self.number = self._examples * self._heads * self._blocks
    self._piece = [
      batch // self._examples,
      heads // self._heads,
      tiling.queries if self._blocks > 1 else rows,
      columns,
    ]

  @property
  def shape(self) -> list[int]:
    """That of all pieces, one after the other."""
    return [self.number, *self._piece]

  def index(self, tile: Tile) -> int:
    """Which piece a tile takes."""
    at = tile.examples % self._examples * self._heads
    at = (at + tile.heads % self._heads) * self._blocks
    return at + tile.block % self._blocks

  def _rows(self, tile: Tile) -> int:
    """How many rows the piece of a tile has."""
    return self._tiling.rows(tile) if self._blocks > 1 else self._piece[2]

  def take(
    self, x: tf.Tensor, tile: Tile, window: Optional[Window] = None
  ) -> tf.Tensor:
    """The piece of a tile, or its window."""
    examples, heads, _, columns = self._piece
    together, rows = examples * heads, self._rows(tile)
    at = self.index(tile) // self._blocks * together
    x = tf.reshape(x, [-1, self._shape[2], columns])[at : at + together]
    at = self.index(tile) % self._blocks * self._piece[2]
    if together == 1:  # its rows lie one behind the other
      x, at = x[0, at : at + rows], 0
    x = tf.reshape(x, [examples, heads, -1, columns])
    whole = Window(rows, 0, self._tiling.shape[3])
    return windows.view(x, self._layout, window or whole, at)

  def put(
    self, x: tf.Tensor, tile: Tile, window: Optional[Window] = None
  ) -> tf.Tensor:
    """A whole piece out of its window, with 0 around it.

    Where the piece has one entry for all examples, heads, queries or keys,
    those of x are summed.
    """
    sizes = zip(_shape(x), self._piece)
    axes = [i for i, (n, whole) in enumerate(sizes) if whole == 1 != n]
    if axes:
      x = tf.reduce_sum(x, axes, keepdims=True)
    if window is None:
      return x
    around: list[list[Size]] = [[0, 0]] * 4
    shape = [*self._piece[:2], self._rows(tile), self._piece[3]]
    for i, axis in enumerate(self._layout, start=2):
      if axis:
        at, n = window.of(axis)
        around[i] = [at, shape[i] - at - n]
    x = tf.pad(x, around)
    x.set_shape(shape)
    return x

  def fill(self, x: tf.Tensor, tile: Tile) -> tf.Tensor:
    """A piece with all queries of a block, of which the last may lack some."""
    missing = self._piece[2] - self._rows(tile)
    return tf.pad(x, [[0, 0], [0, 0], [0, missing], [0, 0]]) if missing else x

  def whole(self, x: tf.Tensor) -> tf.Tensor:
    """The tensor whose pieces these are, one after the other."""
    number = [self._examples, self._heads, self._blocks]
    x = tf.reshape(x, [*number, *self._piece])
    x = tf.transpose(x, [0, 3, 1, 4, 2, 5, 6])
    x = tf.reshape(x, [*self._shape[:2], -1, self._shape[3]])
    return x[:, :, : self._shape[2]]


class Input(NamedTuple):
  """A tensor and how it is cut."""

  x: tf.Tensor
  pieces: Pieces

  def take(self, tile: Tile, window: Optional[Window] = None) -> tf.Tensor:
    """What a tile takes."""
    return self.pieces.take(self.x, tile, window)


class Sum:
  """A tensor that is put together from the pieces of its tiles."""

  def __init__(self, pieces: Pieces, dtype: tf.DType) -> None:
    """Creates an empty sum of what is cut that way."""
    self._pieces = pieces
    self._found: dict[int, tf.Tensor] = {}
    self._whole: Optional[tf.Tensor] = None
    if pieces.number > 1 and math.prod(pieces.shape) > _LARGE * _TILE:
      # Unlike tf.zeros, it is never folded into a constant, nor taken for
      # another one of the same shape.
      self._whole = tf.raw_ops.Empty(shape=pieces.shape, dtype=dtype)

  def add(
    self, x: tf.Tensor, tile: Tile, window: Optional[Window] = None
  ) -> tf.Tensor:
    """Adds the window of a tile."""
    at = self._pieces.index(tile)
    x = self._pieces.fill(self._pieces.put(x, tile, window), tile)
    if at in self._found:
      x = self._found[at] + x
    self._found[at] = x
    if self._whole is None:
      return x
    # What is large is filled in place: there is no room for it twice.
    self._whole = tf.raw_ops.InplaceUpdate(
      x=self._whole, i=[at], v=x[tf.newaxis]
    )
    return self._whole

  def total(self) -> tf.Tensor:
    """The whole tensor."""
    if self._whole is not None:
      return self._pieces.whole(self._whole)
    found = [x for _, x in sorted(self._found.items())]
    return self._pieces.whole(found[0] if len(found) == 1 else tf.stack(found))


def _shape(x: tf.Tensor) -> list[Optional[int]]:
  return x.shape.as_list()


def _divisor(n: int, most: int) -> int:
  """The largest divisor of n that is at most this, or 1."""
  return next((d for d in range(min(n, most), 1, -1) if n % d == 0), 1)
