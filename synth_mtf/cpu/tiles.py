"""Tiles of an alignment B, and the pieces of tensors that belong to them.

B, [batch, heads, length, memory_length], is cut into slabs of some heads and
some queries, and a slab into tiles of some examples. Every tile has all keys.
Layouts are those of `cpu.windows`.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from synth_mtf.cpu import windows
from synth_mtf.cpu.windows import Windows

_TILE = 2**20  # entries of B in a tile: 4 MB
_MOST_TILES = 48  # per layer; beyond that, tiles grow
_LARGE = 16  # tiles, from which size on a gradient is filled in place


class Tile(NamedTuple):
  """Which group of examples, group of heads, block of queries, and window."""

  examples: int
  heads: int
  block: int
  window: int


class Tiling:
  """How an alignment is cut.

  Attributes:
    examples: number of groups of examples.
    heads: number of groups of heads.
    blocks: number of blocks of queries.
    queries: number of queries in a block; the last block may have fewer.
  """

  def __init__(
    self, shape: Sequence[int], by_queries: bool, single: bool = False
  ) -> None:
    """Chooses the size of a tile.

    A tile has several examples only if it has all heads, and parts of the
    queries of several heads only with `by_queries`: all other pieces are
    contiguous in memory, and need no copy.

    Args:
      shape: [batch, heads, length, memory_length].
      by_queries: whether to cut the queries rather than the heads, because
        blocks of queries have different windows.
      single: whether to make a single tile.
    """
    batch, heads, length, self._keys = shape
    self.examples = self.heads = self.blocks = 1
    self.queries = length
    if single:
      return
    rows = max(_TILE // self._keys, batch * heads * length // _MOST_TILES, 1)
    together = _divisor(batch, rows // (heads * length))
    if batch // together <= 2 * _MOST_TILES:  # else batch has few divisors
      self.examples = batch // together
    together = heads if by_queries else _divisor(heads, rows // length)
    self.heads = heads // together
    # Blocks of equal size, unless that takes twice as many.
    fewest = min(-(-length * together // rows), length)
    numbers = range(fewest, 2 * fewest)
    self.blocks = next((n for n in numbers if length % n == 0), fewest)
    self.queries = -(-length // self.blocks)

  @property
  def slabs(self) -> Iterator[list[Tile]]:
    """The tiles of each slab."""
    for heads, block in itertools.product(
      range(self.heads), range(self.blocks)
    ):
      yield [
        Tile(n, heads, block, n * self.blocks + block)
        for n in range(self.examples)
      ]

  @property
  def whole(self) -> Windows:
    """Windows that leave nothing out."""
    return Windows(self.blocks, self.examples * self.blocks, self.queries)

  def windows(self, masks: Sequence['Pieces']) -> Windows:
    """What is seen of each tile.

    Args:
      masks: not 0 at what is seen: keys, or queries where a mask has no column
        for each key. [] hides nothing.
    """
    if not masks:
      return self.whole
    seen: list[tf.Tensor] = []
    tokens: list[tf.Tensor] = []
    for mask in masks:
      group = seen if mask.layout[3] == 'k' else tokens
      group.append(tf.cast(mask.by_tiles(), tf.bool))
    return windows.find(
      seen, tokens, self.examples, self.blocks, self.queries, self._keys
    )


class Cut:
  """How a tensor is cut into pieces.

  Attributes:
    layout: of the tensor and its pieces; a layout that ends in heads is
      transposed tile by tile, and a tile has all heads.
    number: number of pieces.
    piece: the shape of a piece in memory.
  """

  def __init__(self, tiling: Tiling, shape: Sequence[int], layout: str) -> None:
    """Cuts a shape.

    Args:
      tiling: the tiles.
      shape: of the tensor, in memory; size 1 is shared by all tiles.
      layout: of the tensor.
    """
    self.layout = layout
    self._shape = list(shape)
    groups = {'b': tiling.examples, 'h': tiling.heads, 'q': tiling.blocks}
    sizes = dict(zip(layout, shape))
    self._groups = {
      a: n if sizes.get(a, 1) > 1 else 1 for a, n in groups.items()
    }
    self.number = math.prod(self._groups.values())
    self.piece = [
      -(-n // self._groups.get(a, 1)) for a, n in zip(layout, shape)
    ]
    # The queries of one head are contiguous; those of several heads are not.
    examples, heads, *_ = self.named(self.piece)
    self._in_part = 1 if examples * heads == 1 else self._groups['q']

  def named(self, sizes: Sequence[int]) -> list[int]:
    """Reorders what belongs to the axes to [batch, heads, rows, columns]."""
    batch, *others = sizes
    if self.layout[3] == 'h':
      others = [others[2], *others[:2]]
    return [batch, *others]

  def put(self, x: tf.Tensor, tile: Tile, windows: Windows) -> tf.Tensor:
    """A piece from its window, [batch, heads, rows, columns], with 0 around it.

    Where the piece has one entry for all examples, heads, queries or keys, it
    is the sum of theirs.
    """
    sizes = zip(x.shape.as_list(), self.named(self.piece))
    axes = [i for i, (n, whole) in enumerate(sizes) if whole == 1 != n]
    if axes:
      x = tf.reduce_sum(x, axes, keepdims=True)
    if self.layout[3] == 'h':
      x = tf.transpose(x, [0, 2, 3, 1])
    return windows.put(tile.window, x, self.layout, self.piece)

  def whole(self, pieces: tf.Tensor) -> tf.Tensor:
    """The tensor whose pieces these are, one after the other."""
    cut = [a for a in 'bhq' if a in self.layout]
    groups = [self._groups[a] for a in cut]
    x = tf.reshape(pieces, [*groups, *self.piece])
    axes: list[int] = []
    for i, a in enumerate(self.layout, len(cut)):
      axes += [cut.index(a), i] if a in cut else [i]
    x = tf.reshape(tf.transpose(x, axes), self._filled)
    if self._filled == self._shape:
      return x
    return tf.slice(x, [0, 0, 0, 0], self._shape)

  @property
  def _filled(self) -> list[int]:
    """The shape with as many queries in the last block as in the others."""
    groups = [self._groups.get(a, 1) for a in self.layout]
    return [n * of for n, of in zip(groups, self.piece)]

  def index(self, tile: Tile) -> int:
    """Which piece a tile takes."""
    at = 0
    for n, group in zip(tile, self._groups.values()):
      at = at * group + n % group
    return at


class Pieces(Cut):
  """A tensor that is cut."""

  def __init__(self, tiling: Tiling, x: tf.Tensor, layout: str) -> None:
    """Cuts a tensor of that layout."""
    super().__init__(tiling, x.shape.as_list(), layout)
    missing = [m - n for m, n in zip(self._filled, self._shape)]
    self._x = tf.pad(x, [[0, n] for n in missing]) if any(missing) else x

  @functools.cached_property
  def _parts(self) -> list[tf.Tensor]:
    """What is contiguous: pieces, or all blocks of some heads."""
    number = self.number // self._in_part
    shape = list(self.piece)
    shape[0] *= number
    if self._in_part > 1:
      shape[self.layout.index('q')] *= self._in_part
    x = tf.reshape(self._x, shape)
    return tf.split(x, number) if number > 1 else [x]

  def take(self, tile: Tile, windows: Windows) -> tf.Tensor:
    """The window of a tile, [batch, heads, rows, columns]."""
    x = self._parts[self.index(tile) // self._in_part]
    stride = self.piece[self.layout.index('q')] if self._in_part > 1 else 0
    x = windows.view(tile.window, x, self.layout, stride)
    return tf.transpose(x, [0, 3, 1, 2]) if self.layout[3] == 'h' else x

  def by_tiles(self) -> tf.Tensor:
    """A mask: [groups of examples, examples, blocks, queries, keys]."""
    examples, _, rows, columns = self.piece
    number, blocks = self._groups['b'], self._groups['q']
    return tf.reshape(self._x, [number, examples, blocks, rows, columns])


class Sum:
  """A tensor that is put together from the pieces of its tiles."""

  def __init__(self, cut: Cut, dtype: tf.DType = tf.float32) -> None:
    """Creates an empty sum."""
    self._cut = cut
    self._found: dict[int, tf.Tensor] = {}
    self._whole: Optional[tf.Tensor] = None
    shape = [cut.number, *cut.piece]
    if cut.number > 1 and math.prod(shape) > _LARGE * _TILE:
      # Unlike tf.zeros, it is never folded into a constant, nor taken for
      # another one of the same shape.
      self._whole = tf.raw_ops.Empty(shape=shape, dtype=dtype)

  def add(self, x: tf.Tensor, tile: Tile, windows: Windows) -> tf.Tensor:
    """Adds the window of a tile."""
    at = self._cut.index(tile)
    x = self._cut.put(x, tile, windows)
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
