"""softmax(B) V off a TPU, a tile of B after the other.

B is a sum of parts: products, tables, masks. A tile of it, some heads and some
queries of all examples, is made, used and forgotten, and made again for the
gradient. What is as large as B is never made, but for a table that is given,
and its gradient. Tiles fit into a processor's cache, and operands are
transposed once, to

    [heads, batch, length or memory_length, k or memory_length]

with size 1 where they do not depend on a dimension: all products are plain
batched ones, and all sums broadcast.

  attend         softmax(B) V
  attend_shared  the same, where no part of B depends on the batch

A mesh may split the batch and the heads (`can_attend`).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Optional, Union

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import InnerProduct, Scaled, Term, dims_of

_TILE = 2**20  # entries of B in a tile, 4 MB
_MOST_TILES = 48  # of a layer; larger tiles rather than more of them
_LARGE = 16  # tiles, from which on a gradient is filled in place

Tensors = Sequence[tf.Tensor]


def can_attend(call: LayerCall, values: mtf.Tensor) -> bool:
  """Whether the kernels here can take a call: whole rows, float32, no TPU.

  A TPU's compiler makes such a program by itself, of single steps.
  """
  whole = [*call.length, call.memory_length, call.kv_dim]
  return (
    bool(call.length)
    and not kernels.is_tpu(values.mesh)
    and values.dtype == call.logits_dtype == tf.float32
    and not any(map(call.splits, whole))
  )


def attend(
  call: LayerCall, parts: Sequence[Term], values: mtf.Tensor
) -> mtf.Tensor:
  """softmax(B) V, with B the sum of parts.

      W = softmax(B)     Y = W V
      dB = W ([dY, -sum_d dY Y] [V, 1]^T)     dV = W^T dY

  Args:
    call: the layer call.
    parts: over dimensions of [batch..., heads, length, memory_length].
    values: V, [batch..., memory_length, heads, d_kv].

  Returns:
    Y, [batch..., length, heads, d_kv].
  """
  b = _logits(call, parts, values)
  columns = [call.kv_dim]
  v = _operand(call, values, [call.memory_length], columns)

  def forward(*tile: tf.Tensor) -> tf.Tensor:
    *of_b, v = tile
    return tf.matmul(tf.nn.softmax(b.value(of_b)), v)

  def backward(*tile: tf.Tensor) -> Sequence[Optional[tf.Tensor]]:
    *of_b, v, y, dy = tile
    w = tf.nn.softmax(b.value(of_b))
    minus_total = -tf.reduce_sum(dy * y, axis=-1, keepdims=True)
    dy_v = tf.matmul(
      tf.concat([dy, minus_total], axis=-1),
      tf.concat([v, tf.ones_like(v[..., :1])], axis=-1),
      transpose_b=True,
    )
    return [*b.gradients(w * dy_v, of_b), tf.matmul(w, dy, transpose_a=True)]

  return _by_tiles(
    call, _Kernel([*b.operands, v], forward, backward), call.batch, columns
  )


def attend_shared(
  call: LayerCall,
  parts: Sequence[Term],
  visible: Optional[mtf.Tensor],
  nonpad: Optional[mtf.Tensor],
  values: mtf.Tensor,
) -> mtf.Tensor:
  """softmax(B) V, with B the sum of parts that all examples share.

      E = exp(B - c), 0 where hidden     T = E nonpad     Y = (E V) / T
      dX = dY / T     dT = -sum_d dX Y
      dB = E (dX V^T + dT nonpad^T)     dV = E^T dX

  with c the center of each row (`kernels.row_center`), which cancels. E is
  taken once for all examples: their values stand side by side.

  Args:
    call: the layer call.
    parts: over dimensions of [heads, length, memory_length].
    visible: bool over [length, memory_length]; None: all.
    nonpad: 1 at tokens and 0 at padding, [batch..., memory_length]; None: all
      are 1.
    values: V, [batch..., memory_length, heads, d_kv], 0 at padding.

  Returns:
    Y, [batch..., length, heads, d_kv].
  """
  b = _logits(call, parts, values)
  mask = [] if visible is None else [_table(call, visible)]
  memory, columns = [call.memory_length], [*call.batch, call.kv_dim]
  if nonpad is None:
    nonpad = mtf.ones(values.mesh, mtf.Shape([*call.batch, *memory]))
  nonpad = mtf.stop_gradient(nonpad)
  d_kv = call.kv_dim.size

  def examples(x: tf.Tensor) -> tf.Tensor:
    """[..., batch * d_kv] as [..., batch, d_kv]."""
    return tf.reshape(x, [*_shape(x)[:-1], -1, d_kv])

  def side_by_side(x: tf.Tensor) -> tf.Tensor:
    """[..., batch, d_kv] as [..., batch * d_kv]."""
    *rows, examples, d_kv = _shape(x)
    return tf.reshape(x, [*rows, examples * d_kv])

  def exp(tile: Tensors) -> tf.Tensor:
    of_b, seen = tile[: len(b.operands)], tile[len(b.operands) :]
    logits = b.value(of_b)
    return kernels.exp_from(logits, kernels.row_center(logits, *seen), *seen)

  def forward(*tile: tf.Tensor) -> tf.Tensor:
    *inputs, nonpad, v = tile
    e = exp(inputs)
    x, total = tf.matmul(e, v), tf.matmul(e, nonpad)
    return side_by_side(kernels.divide_rows(examples(x), total))

  def backward(*tile: tf.Tensor) -> Sequence[Optional[tf.Tensor]]:
    *inputs, nonpad, v, y, dy = tile
    e = exp(inputs)
    dx = kernels.divide_rows(examples(dy), tf.matmul(e, nonpad))
    dtotal = -tf.reduce_sum(dx * examples(y), axis=-1)
    dx = side_by_side(dx)
    nonpad = tf.broadcast_to(nonpad, [*_shape(v)[:-1], _shape(nonpad)[-1]])
    de = tf.matmul(
      tf.concat([dx, dtotal], axis=-1),
      tf.concat([v, nonpad], axis=-1),
      transpose_b=True,
    )
    return [
      *b.gradients(e * de, inputs[: len(b.operands)]),
      *(None for _ in [*mask, nonpad]),
      tf.matmul(e, dx, transpose_a=True),
    ]

  operands = [
    *b.operands,
    *mask,
    _operand(call, nonpad, memory, call.batch, batch=[]),
    _operand(call, values, memory, columns, batch=[]),
  ]
  return _by_tiles(call, _Kernel(operands, forward, backward), [], columns)


@dataclasses.dataclass(frozen=True)
class _Operand:
  """A tensor as the kernels take it.

  Attributes:
    tensor: [heads..., batch..., rows..., columns...].
    ranks: how many dimensions each of these four has.
    by_query: whether its rows are queries, so that each tile has its own.
    trained: whether it may need a gradient.
  """

  tensor: mtf.Tensor
  ranks: Sequence[int]
  by_query: bool
  trained: bool


def _operand(
  call: LayerCall,
  x: mtf.Tensor,
  rows: Sequence[mtf.Dimension],
  columns: Sequence[mtf.Dimension],
  batch: Optional[Sequence[mtf.Dimension]] = None,
) -> _Operand:
  """Brings a tensor into the layout of the kernels.

  Where it has no head or no batch dimension, it gets some of one entry for each
  part of the mesh.
  """
  trained = x.dtype.is_floating and not isinstance(
    x.operation, mtf.StopGradient
  )
  given = set(x.shape.dims)
  present: list[mtf.Dimension] = []
  dims: list[mtf.Dimension] = []
  for group in (call.heads, call.batch if batch is None else batch):
    if given & set(group):
      present += group
      dims += group
    else:
      dims += [mtf.Dimension(d.name, call.parts(d)) for d in group]
  x = arrange(x, mtf.Shape([*present, *rows, *columns]))
  shape = mtf.Shape([*dims, *rows, *columns])
  if shape.size == x.size:
    x = mtf.reshape(x, shape)
  else:  # the host broadcasts numbers only
    x = mtf.cast(mtf.broadcast(mtf.cast(x, tf.float32), shape), x.dtype)
  leading = len(call.heads), len(dims) - len(call.heads)
  ranks = (*leading, len(rows), len(columns))
  return _Operand(x, ranks, call.length == list(rows), trained)


class _Part:
  """A part of B that is given: a table or a mask."""

  def __init__(self, *operands: _Operand) -> None:
    self.operands = operands

  def value(self, *tile: tf.Tensor) -> tf.Tensor:
    """The part, out of a tile of its operands."""
    (x,) = tile
    return x

  def gradients(self, db: tf.Tensor, *tile: tf.Tensor) -> Tensors:
    """The gradients of the operands, if that of the part is dB."""
    del tile
    return [db]


class _ScaledPart(_Part):
  """alpha T."""

  def value(self, *tile: tf.Tensor) -> tf.Tensor:
    table, alpha = tile
    return table * alpha

  def gradients(self, db: tf.Tensor, *tile: tf.Tensor) -> Tensors:
    table, alpha = tile
    return [db * alpha, db * table]


class _ProductPart(_Part):
  """Q K^T."""

  def value(self, *tile: tf.Tensor) -> tf.Tensor:
    query, key = tile
    return tf.matmul(query, key, transpose_b=True)

  def gradients(self, db: tf.Tensor, *tile: tf.Tensor) -> Tensors:
    query, key = tile
    return [tf.matmul(db, key), tf.matmul(db, query, transpose_a=True)]


def _part(call: LayerCall, term: Term) -> _Part:
  if isinstance(term, InnerProduct):
    return _ProductPart(
      _operand(call, term.query, call.length, [term.k]),
      _operand(call, term.key, [call.memory_length], [term.k]),
    )
  if isinstance(term, Scaled):
    return _ScaledPart(
      _table(call, term.table), _operand(call, term.alpha, [], [])
    )
  return _Part(_table(call, term))


def _table(call: LayerCall, x: mtf.Tensor) -> _Operand:
  rows, columns = (
    [d for d in dims if d in x.shape.dims]
    for dims in (call.length, [call.memory_length])
  )
  return _operand(call, x, rows, columns)


class _Sum:
  """B, a sum of parts; those without a batch dimension are summed first."""

  def __init__(self, parts: Sequence[_Part]) -> None:
    self._parts = parts
    self.operands = [x for part in parts for x in part.operands]

  def value(self, tile: Tensors) -> tf.Tensor:
    """A tile of B out of the tiles of all operands."""
    values = [part.value(*of_part) for part, of_part in self._split(tile)]
    values.sort(key=lambda x: math.prod(_shape(x)))
    return functools.reduce(tf.add, values)

  def gradients(
    self, db: tf.Tensor, tile: Tensors
  ) -> Sequence[Optional[tf.Tensor]]:
    """The gradients of all operands; None for parts that are not trained."""
    gradients: list[Optional[tf.Tensor]] = []
    shared = None  # dB, summed over the batch
    for part, of_part in self._split(tile):
      if not any(x.trained for x in part.operands):
        gradients += [None] * len(of_part)
      elif any(_shape(x)[1] == _shape(db)[1] for x in of_part):
        gradients += part.gradients(db, *of_part)
      else:
        if shared is None:
          shared = tf.reduce_sum(db, axis=1, keepdims=True)
        gradients += part.gradients(shared, *of_part)
    return gradients

  def _split(self, tile: Tensors) -> Iterator[tuple[_Part, Tensors]]:
    at = 0
    for part in self._parts:
      yield part, tile[at : at + len(part.operands)]
      at += len(part.operands)


def _logits(call: LayerCall, parts: Sequence[Term], values: mtf.Tensor) -> _Sum:
  """B, as the sum of parts; they have all of its dimensions together."""
  dims = call.length + [call.memory_length]
  if not set(call.heads) & set(values.shape.dims):
    dims = call.heads + dims
  if not set(dims) <= set().union(*map(dims_of, parts)):
    zeros = mtf.stop_gradient(mtf.zeros(values.mesh, mtf.Shape(dims)))
    parts = [*parts, zeros]
  return _Sum([_part(call, x) for x in parts])


@dataclasses.dataclass(frozen=True)
class _Kernel:
  """What is done with a tile.

  Attributes:
    operands: the last one is V.
    forward: from a tile of each operand to a tile of Y.
    backward: from the same, Y and dY to the gradient of each operand; what an
      operand's tile lacks is still to be summed over.
  """

  operands: Sequence[_Operand]
  forward: Callable[..., tf.Tensor]
  backward: Callable[..., Sequence[Optional[tf.Tensor]]]


def _by_tiles(
  call: LayerCall,
  kernel: _Kernel,
  batch: Sequence[mtf.Dimension],
  columns: Sequence[mtf.Dimension],
) -> mtf.Tensor:
  """Y, [batch..., length, heads, d_kv], made tile by tile.

  Args:
    call: the layer call.
    kernel: what is done with a tile.
    batch: the batch dimensions of B.
    columns: those of a row of Y in the kernel.
  """
  groups = call.heads, batch, call.length, columns
  dims = [d for group in groups for d in group]
  trained = [x.tensor for x in kernel.operands if x.trained]
  used = {d for x in kernel.operands for d in x.tensor.shape.dims}
  # What is whole may be on an axis of a mesh that has one device.
  splittable = [
    *call.heads,
    *call.batch,
    *(d for d in used.union(dims) if not call.splits(d)),
  ]

  def forward(*slices: tf.Tensor) -> tf.Tensor:
    y = _forward(kernel, slices)
    return tf.reshape(y, [d.size // call.parts(d) for d in dims])

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[Optional[mtf.Tensor]]:
    found = iter(
      mtf.slicewise(
        functools.partial(_backward, kernel, [len(group) for group in groups]),
        [*op.inputs, op.outputs[0], dy],
        output_shape=[x.shape for x in trained],
        output_dtype=[x.dtype for x in trained],
        splittable_dims=splittable,
      )
    )
    return [next(found) if x.trained else None for x in kernel.operands]

  y = mtf.slicewise(
    forward,
    [x.tensor for x in kernel.operands],
    output_shape=mtf.Shape(dims),
    output_dtype=tf.float32,
    splittable_dims=splittable,
    grad_function=gradient,
  )
  return mtf.transpose(
    y, mtf.Shape([*call.batch, *call.length, *call.heads, call.kv_dim])
  )


def _forward(kernel: _Kernel, slices: Tensors) -> tf.Tensor:
  """Y, [heads, batch, length, columns]."""
  inputs = [_flat(x, o.ranks) for x, o in zip(slices, kernel.operands)]
  tiling = _Tiling(inputs, [o.by_query for o in kernel.operands])
  pieces = [cut.pieces(x) for cut, x in zip(tiling.cuts, inputs)]
  y: list[tf.Tensor] = []
  for tile in tiling.tiles:
    with tf.control_dependencies(y[-1:]):
      y.append(kernel.forward(*(of[tile] for of in pieces)))
  cut = _Cut(tiling, [*tiling.rows, _shape(y[0])[-1]], by_query=True)
  return cut.whole(_concat(y))


def _backward(
  kernel: _Kernel, ranks_of_y: Sequence[int], *slices: tf.Tensor
) -> Union[tf.Tensor, tuple[tf.Tensor, ...]]:
  """The gradients of what is trained; the last two slices are Y and dY."""
  operands = kernel.operands
  ranks = [*(o.ranks for o in operands), ranks_of_y, ranks_of_y]
  inputs = [_flat(x, r) for x, r in zip(slices, ranks)]
  tiling = _Tiling(inputs, [*(o.by_query for o in operands), True, True])
  pieces = [cut.pieces(x) for cut, x in zip(tiling.cuts, inputs)]
  gradients = {
    i: _Gradient(tiling.cuts[i], inputs[i].dtype)
    for i, operand in enumerate(operands)
    if operand.trained
  }
  last: list[tf.Tensor] = []
  for tile in tiling.tiles:
    with tf.control_dependencies(last):
      found = kernel.backward(*(of[tile] for of in pieces))
      last = [of.add(tile, found[i]) for i, of in gradients.items()]
  result = [
    tf.reshape(of.total(), slices[i].shape) for i, of in gradients.items()
  ]
  return tuple(result) if len(result) > 1 else result[0]


class _Tile(NamedTuple):
  """Which group of heads, and which block of queries."""

  group: int
  block: int


class _Tiling:
  """Which heads and queries make a tile: some heads, or some queries of one.

  Attributes:
    rows: [heads, batch, length], the sizes of a row of B.
    groups: the number of groups of heads.
    blocks: the number of blocks of queries.
    queries: how many a block has.
    tiles: all of them, in order.
    cuts: how each input is cut.
  """

  def __init__(self, inputs: Tensors, by_query: Sequence[bool]) -> None:
    """Chooses the size of a tile.

    Args:
      inputs: [heads, batch, rows, columns] each.
      by_query: which of them have queries as rows.
    """
    shapes = [_shape(x) for x in inputs]
    heads, batch, _, _ = map(max, zip(*shapes))
    length, memory_length = (
      max(shape[2] for shape, of in zip(shapes, by_query) if of == queries)
      for queries in (True, False)
    )
    row = batch * memory_length
    rows = max(_TILE // row, heads * length // _MOST_TILES, 1)
    together = (n for n in range(heads, 1, -1) if heads % n == 0)
    self.groups = heads // next((n for n in together if n * length <= rows), 1)
    # As many blocks as divide the queries, if less than twice as many will do.
    fewest = -(-length // rows)
    numbers = range(fewest, 2 * fewest)
    blocks = next((n for n in numbers if length % n == 0), fewest)
    self.queries = -(-length // blocks)
    self.blocks = -(-length // self.queries)
    self.rows = [heads, batch, length]
    self.tiles = [
      _Tile(*of)
      for of in itertools.product(range(self.groups), range(self.blocks))
    ]
    self.cuts = [_Cut(self, shape, of) for shape, of in zip(shapes, by_query)]


class _Cut:
  """How a tensor, [heads, batch, rows, columns], is cut for the tiles.

  A piece has the heads and rows of a tile, and lies in memory behind the one
  before it. Nothing is copied, unless the queries of several examples are cut,
  or some are missing in the last block, which are then 0.

  Attributes:
    number: how many pieces there are.
    piece_shape: [heads, batch, rows, columns] of each.
  """

  def __init__(
    self, tiling: _Tiling, shape: Sequence[int], by_query: bool
  ) -> None:
    """Cuts a shape.

    Args:
      tiling: the tiles.
      shape: that of the tensor; one head is for all groups.
      by_query: whether its rows are queries; others are for all blocks.
    """
    self._tiling = tiling
    self._shape = shape
    self._groups = tiling.groups if shape[0] > 1 else 1
    self._blocks = tiling.blocks if by_query else 1
    self.number = self._groups * self._blocks
    heads, batch, rows, columns = shape
    if self._blocks > 1:
      rows = tiling.queries
    self.piece_shape = [heads // self._groups, batch, rows, columns]

  def index(self, tile: _Tile) -> int:
    """Which piece a tile takes."""
    return tile.group % self._groups * self._blocks + tile.block % self._blocks

  def pieces(self, x: tf.Tensor) -> dict[_Tile, tf.Tensor]:
    """Those of a tensor, for each tile."""
    if self._blocks > 1:
      heads, batch, rows, columns = self._shape
      blocks = [self._blocks, self._tiling.queries]
      missing = math.prod(blocks) - rows
      if missing:
        x = tf.pad(x, [[0, 0], [0, 0], [0, missing], [0, 0]])
      x = tf.transpose(
        tf.reshape(x, [heads, batch, *blocks, columns]), [0, 2, 1, 3, 4]
      )
      x = tf.reshape(x, [-1, *_shape(x)[2:]])
    pieces = tf.split(x, self.number) if self.number > 1 else [x]
    return {tile: pieces[self.index(tile)] for tile in self._tiling.tiles}

  def whole(self, x: tf.Tensor) -> tf.Tensor:
    """The tensor whose pieces these are, one after the other."""
    heads, batch, rows, columns = self._shape
    if self._blocks > 1:
      queries = self._tiling.queries
      x = tf.reshape(x, [heads, self._blocks, batch, queries, columns])
      x = tf.transpose(x, [0, 2, 1, 3, 4])
      x = tf.reshape(x, [heads, batch, -1, columns])[:, :, :rows]
    return tf.reshape(x, self._shape)


class _Gradient:
  """The gradient of an operand, put together from those of its tiles."""

  def __init__(self, cut: _Cut, dtype: tf.DType) -> None:
    """Creates an empty gradient of what is cut that way."""
    self._cut = cut
    self._pieces: dict[int, tf.Tensor] = {}
    self._whole: Optional[tf.Tensor] = None
    if (
      cut.number > 1
      and cut.number * math.prod(cut.piece_shape) > _LARGE * _TILE
    ):
      # Unlike tf.zeros, it is never folded into a constant, nor taken for
      # another one of the same shape.
      self._whole = tf.raw_ops.Empty(
        shape=[cut.number, *cut.piece_shape], dtype=dtype
      )

  def add(self, tile: _Tile, found: tf.Tensor) -> tf.Tensor:
    """Adds that of a tile."""
    at = self._cut.index(tile)
    found = _sum_to(found, self._cut.piece_shape)
    if at in self._pieces:
      found = self._pieces[at] + found
    self._pieces[at] = found
    if self._whole is None:
      return found
    # What is large is filled in place: there is no room for it twice.
    self._whole = tf.raw_ops.InplaceUpdate(
      x=self._whole, i=[at], v=found[tf.newaxis]
    )
    return self._whole

  def total(self) -> tf.Tensor:
    """That of the whole operand."""
    if self._whole is None:
      return self._cut.whole(_concat([*self._pieces.values()]))
    return self._cut.whole(self._whole)


def _flat(x: tf.Tensor, ranks: Sequence[int]) -> tf.Tensor:
  """Merges dimensions: as many as ranks says for each one of the result."""
  sizes = iter(_shape(x))
  return tf.reshape(x, [math.prod(itertools.islice(sizes, n)) for n in ranks])


def _shape(x: tf.Tensor) -> list[int]:
  return x.shape.as_list()


def _concat(tensors: Tensors) -> tf.Tensor:
  return tensors[0] if len(tensors) == 1 else tf.concat(tensors, 0)


def _sum_to(x: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
  """Sums over what was broadcast from this shape."""
  axes = [i for i, (a, b) in enumerate(zip(_shape(x), shape)) if a > b]
  return tf.reduce_sum(x, axes, keepdims=True) if axes else x
