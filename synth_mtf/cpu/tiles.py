"""Tiles of an alignment B, and pieces of all tensors that it is made of.

A slab is some heads and some queries of all examples; a tile is a slab of some
examples, with all keys. Tensors are

    [batch, heads, rows, columns]

with size 1 where they do not depend on a dimension; rows and columns are
queries, keys or what else there is (`windows.Layout`).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from synth_mtf.cpu import windows
from synth_mtf.cpu.windows import Axis, Layout, Whole, Window

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
    queries: how many a block has; the last one may lack some.
  """

  def __init__(self, shape: Sequence[int], by_queries: bool) -> None:
    """Chooses the size of a tile.

    A tile has several examples only if it has all heads, and parts of the
    queries of several heads only if that was asked for: all other pieces lie in
    memory one behind the other, and nothing is copied.

    Args:
      shape: [batch, heads, length, memory_length].
      by_queries: whether blocks of queries go before groups of heads, since
        their windows differ.
    """
    self.shape = list(shape)
    batch, heads, length, memory_length = shape
    rows = max(_TILE // memory_length, batch * heads * length // _MOST_TILES, 1)
    together = _divisor(batch, rows // (heads * length))
    if batch // together > 2 * _MOST_TILES:  # what has few divisors stays whole
      together = batch
    self.examples = batch // together
    together = heads if by_queries else _divisor(heads, rows // length)
    self.heads = heads // together
    # As many blocks as divide the queries, if less than twice as many will do.
    fewest = min(-(-length * together // rows), length)
    numbers = range(fewest, 2 * fewest)
    self.blocks = next((n for n in numbers if length % n == 0), fewest)
    self.queries = -(-length // self.blocks)

  @property
  def slabs(self) -> Iterator[list[Tile]]:
    """The tiles of each slab: all examples of some heads and queries."""
    for heads, block in itertools.product(
      range(self.heads), range(self.blocks)
    ):
      yield [Tile(n, heads, block) for n in range(self.examples)]

  def whole(self, tile: Tile) -> Window:
    """All of a tile."""
    return Whole(tile.block, self.queries)

  def windows(
    self, masks: Sequence[tuple['Cut', tf.Tensor]]
  ) -> Callable[[Tile], Window]:
    """What is seen of each tile.

    Args:
      masks: 1 at what is seen, each with how it is cut: which keys are seen,
        or, without a column for each key, which queries are tokens. [] hides
        nothing.
    """
    if not masks:
      return self.whole
    of_keys: list[tf.Tensor] = []
    tokens: list[tf.Tensor] = []
    for cut, x in masks:
      group = of_keys if cut.layout.columns else tokens
      group.append(tf.cast(cut.by_tiles(x), tf.bool))
    found = windows.find(
      of_keys, tokens, self.examples, self.blocks, self.queries, self.shape[3]
    )
    return lambda tile: Window(found, tile.examples * self.blocks + tile.block)


class Cut:
  """How a tensor, [batch, heads, rows, columns], is cut into pieces.

  Attributes:
    layout: how it and its pieces lie in memory; with the heads at the end, a
      tile has all of them.
    number: how many pieces there are.
    piece: [batch, heads, rows, columns] of each.
  """

  def __init__(
    self, tiling: Tiling, shape: Sequence[int], layout: Layout
  ) -> None:
    """Cuts a shape.

    Args:
      tiling: the tiles.
      shape: that of the tensor; one example is for all, and so is one head.
      layout: how it lies in memory.
    """
    self.layout = layout
    self._shape = list(shape)
    batch, heads, rows, columns = shape
    self._examples = tiling.examples if batch > 1 else 1
    self._heads = tiling.heads if heads > 1 else 1
    self._blocks = tiling.blocks if layout.rows is Axis.QUERIES else 1
    self.number = self._examples * self._heads * self._blocks
    self.piece = [
      batch // self._examples,
      heads // self._heads,
      tiling.queries if self._blocks > 1 else rows,
      columns,
    ]
    # The queries of one head lie together; those of several heads do not.
    self._in_part = 1 if math.prod(self.piece[:2]) == 1 else self._blocks

  def index(self, tile: Tile) -> int:
    """Which piece a tile takes."""
    at = tile.examples % self._examples * self._heads
    at = (at + tile.heads % self._heads) * self._blocks
    return at + tile.block % self._blocks

  def by_tiles(self, x: tf.Tensor) -> tf.Tensor:
    """[groups of examples, examples, blocks, rows, columns], of any head."""
    examples, _, rows, columns = self.piece
    shape = [self._examples, examples, self._blocks, rows, columns]
    return tf.reshape(self._fill(x), shape)

  def split(self, x: tf.Tensor) -> list[tf.Tensor]:
    """What lies together in memory: pieces, or all blocks of some heads."""
    examples, heads, rows, columns = self.piece
    x = self._fill(x)
    parts = self.number // self._in_part
    shape = [parts * examples, heads, self._in_part * rows, columns]
    x = tf.reshape(x, self.layout.stored(shape))
    return tf.split(x, parts) if parts > 1 else [x]

  def _fill(self, x: tf.Tensor) -> tf.Tensor:
    """Gives the last block as many queries as the others have."""
    missing = self._blocks * self.piece[2] - self._shape[2]
    if not missing:
      return x
    return tf.pad(x, self.layout.stored([[0, 0], [0, 0], [0, missing], [0, 0]]))

  def take(
    self, parts: Sequence[tf.Tensor], tile: Tile, window: Window
  ) -> tf.Tensor:
    """The window of a tile, out of what `split` made."""
    x = parts[self.index(tile) // self._in_part]
    rows = self.piece[2] if self._in_part > 1 else 0
    return self.layout.load(window.view(x, self.layout, rows))

  def put(self, x: tf.Tensor, window: Window) -> tf.Tensor:
    """A piece out of its window, with 0 around it.

    Where the piece has one entry for all examples, heads, queries or keys,
    those of x are summed.
    """
    sizes = zip(x.shape.as_list(), self.piece)
    axes = [i for i, (n, whole) in enumerate(sizes) if whole == 1 != n]
    if axes:
      x = tf.reduce_sum(x, axes, keepdims=True)
    x = self.layout.store(x)
    return window.put(x, self.layout, self.layout.stored(self.piece))

  def whole(self, pieces: tf.Tensor) -> tf.Tensor:
    """The tensor whose pieces these are, one after the other."""
    number = [self._examples, self._heads, self._blocks]
    x = tf.reshape(pieces, [*number, *self.layout.stored(self.piece)])
    batch, heads, rows, columns = self.layout.named(range(3, 7))
    groups = [[0, batch], [1, heads], [2, rows], [columns]]
    x = tf.transpose(x, [*itertools.chain(*self.layout.stored(groups))])
    examples, heads, rows, columns = self._shape
    filled = [examples, heads, self._blocks * self.piece[2], columns]
    x = tf.reshape(x, self.layout.stored(filled))
    if filled == self._shape:
      return x
    return tf.slice(x, [0, 0, 0, 0], self.layout.stored(self._shape))


class Pieces:
  """A tensor that is cut."""

  def __init__(self, x: tf.Tensor, cut: Cut) -> None:
    """Cuts a tensor."""
    self.cut = cut
    self._parts = cut.split(x)

  def take(self, tile: Tile, window: Window) -> tf.Tensor:
    """The window of a tile."""
    return self.cut.take(self._parts, tile, window)


class Sum:
  """A tensor that is put together from the pieces of its tiles."""

  def __init__(self, cut: Cut, dtype: tf.DType = tf.float32) -> None:
    """Creates an empty sum of what is cut that way."""
    self._cut = cut
    self._found: dict[int, tf.Tensor] = {}
    self._whole: Optional[tf.Tensor] = None
    shape = [cut.number, *cut.layout.stored(cut.piece)]
    if cut.number > 1 and math.prod(shape) > _LARGE * _TILE:
      # Unlike tf.zeros, it is never folded into a constant, nor taken for
      # another one of the same shape.
      self._whole = tf.raw_ops.Empty(shape=shape, dtype=dtype)

  def add(self, x: tf.Tensor, tile: Tile, window: Window) -> tf.Tensor:
    """Adds what was found for the window of a tile."""
    at = self._cut.index(tile)
    x = self._cut.put(x, window)
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
      return self._cut.whole(self._whole)
    pieces = [x for _, x in sorted(self._found.items())]
    return self._cut.whole(pieces[0] if len(pieces) == 1 else tf.stack(pieces))


def _divisor(n: int, most: int) -> int:
  """The largest divisor of n that is at most this, or 1."""
  return next((d for d in range(min(n, most), 1, -1) if n % d == 0), 1)
