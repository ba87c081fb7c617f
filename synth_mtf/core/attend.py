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
from typing import Optional, Union

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
  operands = kernel.operands
  tiling = _Tiling(
    [_flat(x, o.ranks) for x, o in zip(slices, operands)],
    [o.by_query for o in operands],
  )
  groups: list[tf.Tensor] = []
  last: list[tf.Tensor] = []
  for group in range(tiling.groups):
    blocks: list[tf.Tensor] = []
    for block in range(tiling.blocks):
      with tf.control_dependencies(last):
        blocks.append(kernel.forward(*tiling.tile(group, block)))
      last = blocks[-1:]
    groups.append(_concat(blocks, axis=2))
  return _concat(groups, axis=0)


def _backward(
  kernel: _Kernel, ranks_of_y: Sequence[int], *slices: tf.Tensor
) -> Union[tf.Tensor, tuple[tf.Tensor, ...]]:
  """The gradients of what is trained; the last two slices are Y and dY."""
  operands = kernel.operands
  ranks = [*(o.ranks for o in operands), ranks_of_y, ranks_of_y]
  tiling = _Tiling(
    [_flat(x, r) for x, r in zip(slices, ranks)],
    [*(o.by_query for o in operands), True, True],
  )
  trained = [i for i, o in enumerate(operands) if o.trained]
  gradients = [
    _Gradient(tiling.inputs[i], operands[i].by_query, tiling.groups)
    for i in trained
  ]
  last: list[tf.Tensor] = []
  for group in range(tiling.groups):
    for block in range(tiling.blocks):
      with tf.control_dependencies(last):
        tile = tiling.tile(group, block)
        found = kernel.backward(*tile)
        last = [
          gradient.add(_sum_to(found[i], _shape(tile[i])))
          for i, gradient in zip(trained, gradients)
        ]
    with tf.control_dependencies(last):
      last = [gradient.end_group(group) for gradient in gradients]
  result = [
    tf.reshape(gradient.total(), slices[i].shape)
    for i, gradient in zip(trained, gradients)
  ]
  return tuple(result) if len(result) > 1 else result[0]


class _Tiling:
  """Which heads and queries make a tile.

  Attributes:
    inputs: [heads, batch, rows, columns] each.
    groups: the number of groups of heads.
    blocks: the number of blocks of queries.
  """

  def __init__(self, inputs: Tensors, by_query: Sequence[bool]) -> None:
    """Chooses the size of a tile.

    Args:
      inputs: [heads, batch, rows, columns] each.
      by_query: which of them have queries as rows.
    """
    self.inputs = inputs
    self._by_query = by_query
    heads, batch, _, _ = map(max, zip(*map(_shape, inputs)))
    length, memory_length = (
      max(_shape(x)[2] for x, of in zip(inputs, by_query) if of == queries)
      for queries in (True, False)
    )
    row = batch * memory_length
    entries = max(_TILE, heads * length * row // _MOST_TILES)
    rows = entries // row  # in a tile, of all heads
    self._queries = min(max(rows, 1), length)
    self._heads = max(
      n
      for n in range(1, heads + 1)
      if heads % n == 0 and (n == 1 or n * length <= rows)
    )
    self.groups = heads // self._heads
    self.blocks = -(-length // self._queries)

  def tile(self, group: int, block: int) -> list[tf.Tensor]:
    """One tile of each input."""
    tile = []
    for x, by_query in zip(self.inputs, self._by_query):
      if _shape(x)[0] > self._heads:
        x = x[group * self._heads : (group + 1) * self._heads]
      if by_query and self.blocks > 1:
        x = x[:, :, block * self._queries : (block + 1) * self._queries]
      tile.append(x)
    return tile


class _Gradient:
  """The gradient of an operand, put together from those of its tiles."""

  def __init__(self, x: tf.Tensor, by_query: bool, groups: int) -> None:
    """Creates an empty gradient.

    Args:
      x: the operand, [heads, batch, rows, columns].
      by_query: whether each tile has rows of its own.
      groups: the number of groups of heads.
    """
    heads, *others = _shape(x)
    self._by_query = by_query
    self._by_head = groups > 1 and heads > 1
    self._blocks: list[tf.Tensor] = []
    self._groups: list[tf.Tensor] = []
    self._whole: Optional[tf.Tensor] = None
    if self._by_head and math.prod(others) * heads > _LARGE * _TILE:
      # Unlike tf.zeros, it is never folded into a constant, nor taken for
      # another one of the same shape.
      self._whole = tf.raw_ops.Empty(
        shape=[groups, heads // groups, *others], dtype=x.dtype
      )

  def add(self, tile: tf.Tensor) -> tf.Tensor:
    """Adds that of a tile."""
    if self._by_query or not self._blocks:
      self._blocks.append(tile)
    else:
      self._blocks[0] += tile
    return self._blocks[-1]

  def end_group(self, group: int) -> tf.Tensor:
    """Adds that of a group of heads."""
    found, self._blocks = _concat(self._blocks, axis=2), []
    if self._whole is not None:
      # What is large is filled in place: there is no room for all groups twice.
      self._whole = tf.raw_ops.InplaceUpdate(
        x=self._whole, i=[group], v=found[tf.newaxis]
      )
      return self._whole
    if self._by_head or not self._groups:
      self._groups.append(found)
    else:
      self._groups[0] += found
    return self._groups[-1]

  def total(self) -> tf.Tensor:
    """That of the operand, of as many entries."""
    if self._whole is not None:
      return self._whole
    return _concat(self._groups, axis=0)


def _flat(x: tf.Tensor, ranks: Sequence[int]) -> tf.Tensor:
  """Merges dimensions: as many as ranks says for each one of the result."""
  sizes = iter(_shape(x))
  return tf.reshape(x, [math.prod(itertools.islice(sizes, n)) for n in ranks])


def _shape(x: tf.Tensor) -> list[int]:
  return x.shape.as_list()


def _concat(tensors: Tensors, axis: int) -> tf.Tensor:
  return tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis)


def _sum_to(x: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
  """Sums over what was broadcast from this shape."""
  axes = [i for i, (a, b) in enumerate(zip(_shape(x), shape)) if a > b]
  return tf.reduce_sum(x, axes, keepdims=True) if axes else x
