"""Computes softmax(B) V on CPUs, one tile of B at a time.

B is a sum of terms: products, tables, masks. `cpu.tiles` cuts it into tiles
that fit in the processor's cache. Tiles are recomputed for the gradient, so
that nothing as large as B is materialized, except for an input table of that
size and its gradient. In this order:

    attend_each, attend_shared    the equations, for a tile
    _part, _operand               terms of B to operands in a common layout
    _by_tiles                     a Mesh-TensorFlow operation and its gradient
    _OnDevice                     the loops over tiles, on each device

Each operand is transposed once, to

    [batch, heads, length or memory_length, k or memory_length]

with size 1 for dimensions that it lacks, so that all products are plain batched
products and all sums broadcast.

A mesh may split the batch and the heads. On devices other than CPUs, B is a
single tile.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.dimensions import arrange, is_tpu, on_cpu
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import (
  InnerProduct,
  Logits,
  Term,
  add,
  dims_of,
  factors,
)
from synth_mtf.core.softmax import (
  divide_rows,
  exp_from,
  is_clipped,
  row_center,
  row_ends,
)
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.cpu.tiles import Pieces, Tile, Tiling, Windows

Tensors = Sequence[tf.Tensor]


def can_attend(call: LayerCall, logits: Logits, values: mtf.Tensor) -> bool:
  """Whether a call can be tiled.

  Rows must be in float32 and whole on each device, and B must depend on the
  head, the query and the key. On a TPU, XLA fuses the separate operations by
  itself.
  """
  if is_tpu(values.mesh) or call.context.model.ensemble_dims:
    return False
  if not call.length:  # incremental decoding
    return False
  if values.dtype != tf.float32 or call.logits_dtype != tf.float32:
    return False
  rows = [*call.length, call.memory_length, call.kv_dim]
  if any(call.splits(dim) for dim in rows):
    return False
  dims = set().union(*(dims_of(term) for term in logits.terms))
  return {*call.heads, *call.length, call.memory_length} <= dims


def attend_each(
  call: LayerCall, logits: Logits, visibility: Visibility, values: mtf.Tensor
) -> mtf.Tensor:
  """Computes softmax(B) V where each example has its own B.

  W = softmax(B)     Y = W V
  dB = W ([dY, -sum_d dY Y] [V, 1]^T)     dV = W^T dY
  """
  logits = add(call, [*logits.terms, *visibility.biases(tf.float32)])
  kernel = _Kernel(
    shared=[_part(call, term) for term in logits.shared],
    local=[_part(call, term) for term in logits.local],
    others=[_operand(call, values, 'k.', [call.kv_dim])],
    masks=[
      _operand(call, mtf.cast(x, tf.int32), 'qk') for x in visibility.masks
    ],
    forward=_average,
    backward=_average_gradient,
    # Neighbouring queries see nearly the same keys.
    by_queries=visibility.pairs is not None,
  )
  return _by_tiles(call, kernel, call.batch, [call.kv_dim])


def _average(
  b: tf.Tensor, v: tf.Tensor, seen: tf.Tensor | None = None
) -> tf.Tensor:
  return tf.matmul(_weights(b, seen), v)


def _average_gradient(
  b: tf.Tensor,
  v: tf.Tensor,
  y: tf.Tensor,
  dy: tf.Tensor,
  seen: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
  w = _weights(b, seen)
  minus_total = -tf.reduce_sum(dy * y, axis=-1, keepdims=True)
  dy_v = tf.matmul(
    tf.concat([dy, minus_total], axis=-1),
    tf.pad(v, [[0, 0], [0, 0], [0, 0], [0, 1]], constant_values=1.0),
    transpose_b=True,
  )
  return w * dy_v, tf.matmul(w, dy, transpose_a=True)


def _weights(b: tf.Tensor, seen: tf.Tensor | None) -> tf.Tensor:
  """Returns softmax(B), 0 in rows that see nothing."""
  w = tf.nn.softmax(b)
  return w if seen is None else tf.where_v2(seen, w, 0.0)


def attend_shared(
  call: LayerCall, logits: Logits, visibility: Visibility, values: mtf.Tensor
) -> mtf.Tensor:
  """Computes softmax(B) V where all examples share B and the visible pairs.

      E = exp(B - c), 0 where hidden     T = E nonpad     Y = (E V) / T
      dX = dY / T     dT = -sum_d dX Y
      dB = E (dX V^T + dT nonpad^T)     dV = E^T dX

  where V is 0 at padding, and c, the center of each row (`row_center`),
  cancels. E is computed once and multiplied by the concatenated values of all
  examples. A tile whose rows span more than E can represent is computed as in
  `attend_each`.
  """
  values = zero_hidden(values, visibility.keys)
  # nonpad has head dimensions only if V does.
  heads = [d for d in call.heads if d in values.shape.dims]
  nonpad_shape = mtf.Shape([*call.batch, *heads, call.memory_length])
  if visibility.keys is None:
    nonpad = mtf.ones(values.mesh, nonpad_shape)
  else:
    nonpad = visibility.keys
  nonpad = mtf.stop_gradient(mtf.broadcast(nonpad, nonpad_shape))
  d_kv = call.kv_dim.size

  def examples(x: tf.Tensor) -> tf.Tensor:
    """Splits [1, heads, rows, batch * d_kv] into [..., batch, d_kv]."""
    return tf.reshape(x, [1, x.shape[1], -1, x.shape[3] // d_kv, d_kv])

  def side_by_side(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [1, x.shape[1], -1, x.shape[3] * d_kv])

  def one_by_one(x: tf.Tensor) -> tf.Tensor:
    """Transposes [1, heads, rows, batch * d_kv] to [batch, ..., d_kv]."""
    return tf.transpose(examples(x)[0], [2, 0, 1, 3])

  def joined(x: tf.Tensor) -> tf.Tensor:
    """Reverts `one_by_one`."""
    return side_by_side(tf.transpose(x, [1, 2, 0, 3])[tf.newaxis])

  def separate(
    b: tf.Tensor, visible: Tensors, nonpad: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each example's B and visible pairs, [batch, heads, ...]."""
    seen = tf.transpose(nonpad, [3, 1, 0, 2]) > 0
    for pairs in visible:
      seen &= pairs
    return tf.where_v2(seen, b, b.dtype.min), seen

  def forward(b: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    *pairs, nonpad, v = others
    visible = [tf.cast(x, tf.bool) for x in pairs]
    low, high = row_ends(b, *visible)
    center = row_center(low, high)

    def shared() -> tf.Tensor:
      e = exp_from(b, center, *visible)
      x = tf.matmul(e, v)
      total = tf.matmul(e, nonpad)
      return side_by_side(divide_rows(examples(x), total))

    def each() -> tf.Tensor:
      with tf.name_scope('each_example'):
        of_each, seen = separate(b, visible, nonpad)
        return joined(_average(of_each, one_by_one(v), seen))

    return tf.cond(tf.reduce_any(is_clipped(low, center)), each, shared)

  def backward(b: tf.Tensor, *others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    *pairs, nonpad, v, y, dy = others
    visible = [tf.cast(x, tf.bool) for x in pairs]
    low, high = row_ends(b, *visible)
    center = row_center(low, high)

    def shared() -> tuple[tf.Tensor, tf.Tensor]:
      e = exp_from(b, center, *visible)
      dx = divide_rows(examples(dy), tf.matmul(e, nonpad))
      dtotal = -tf.reduce_sum(dx * examples(y), axis=-1)
      dx = side_by_side(dx)
      de = tf.matmul(
        tf.concat([dx, dtotal], axis=-1),
        tf.concat([v, nonpad], axis=-1),
        transpose_b=True,
      )
      return e * de, tf.matmul(e, dx, transpose_a=True)

    def each() -> tuple[tf.Tensor, tf.Tensor]:
      with tf.name_scope('each_example'):
        of_each, seen = separate(b, visible, nonpad)
        db, dv = _average_gradient(
          of_each, one_by_one(v), one_by_one(y), one_by_one(dy), seen
        )
        return tf.reduce_sum(db, axis=0, keepdims=True), joined(dv)

    return tf.cond(tf.reduce_any(is_clipped(low, center)), each, shared)

  masks = [_seen_by_any(call, x) for x in visibility.masks]
  pairs = [] if visibility.pairs is None else masks[:1]
  columns = [*call.batch, call.kv_dim]
  kernel = _Kernel(
    shared=[_part(call, term) for term in logits.shared],
    local=[],
    others=[
      *(_operand(call, x, 'qk') for x in pairs),
      _operand(call, nonpad, 'k.', call.batch),
      _operand(call, values, 'k.', columns),
    ],
    masks=[_operand(call, x, 'qk') for x in masks],
    forward=forward,
    backward=backward,
  )
  return _by_tiles(call, kernel, [], columns)


def _seen_by_any(call: LayerCall, mask: mtf.Tensor) -> mtf.Tensor:
  """Returns a mask of what any example sees."""
  others = [d for d in mask.shape.dims if d not in call.batch]
  return mtf.reduce_max(
    mtf.cast(mask, tf.int32), output_shape=mtf.Shape(others)
  )


@dataclasses.dataclass(frozen=True, eq=False)
class _Operand:
  """A tensor in the layout that kernels expect.

  Attributes:
    tensor: the tensor, with its dimensions in the order of the layout.
    shape: the size of each axis of the layout, on a device.
    layout: see `cpu.tiles`.
    trained: whether it may need a gradient.
  """

  tensor: mtf.Tensor
  shape: Sequence[int]
  layout: str
  trained: bool


class _Part(NamedTuple):
  """A term of B: a table T, alpha T, or a product Q K^T.

  Attributes:
    operands: its factors.
    is_product: whether it is Q K^T.
  """

  operands: Sequence[_Operand]
  is_product: bool

  def value(self, tensors: Tensors) -> tf.Tensor:
    """Returns a tile of the part, from tiles of its operands."""
    if self.is_product:
      query, key = tensors
      return _matmul(query, key, transpose_b=True)
    return functools.reduce(tf.multiply, tensors)

  def gradients(self, db: tf.Tensor, tensors: Tensors) -> Tensors:
    """Returns the operands' gradients, not yet summed over broadcast axes."""
    if len(tensors) == 1:
      return [db]
    x, y = tensors
    if self.is_product:
      return [_matmul(db, y), _matmul(db, x, transpose_a=True)]
    return [db * y, db * x]


def _matmul(
  x: tf.Tensor,
  y: tf.Tensor,
  *,
  transpose_a: bool = False,
  transpose_b: bool = False,
) -> tf.Tensor:
  """Multiplies x [b, h, m, k] by y, as one product of matrices if y is shared.

  For x [b, 1, m, k] and y [1, 1, k, n], oneDNN of TensorFlow 2.20 and 2.21
  writes beyond its arrays (https://github.com/tensorflow/tensorflow/issues/117700).
  A single matrix x does not need that, and einsum would copy it transposed.
  """
  if y.shape[:2] != [1, 1] or x.shape[:2] == [1, 1]:
    return tf.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
  rows = 'km' if transpose_a else 'mk'
  matrix = 'nk' if transpose_b else 'kn'
  return tf.einsum(f'bh{rows},{matrix}->bhmn', x, y[0, 0])


class _Kernel(NamedTuple):
  """The computation for one tile.

  Attributes:
    shared: the parts of B that all examples share, summed only once.
    local: the other parts.
    others: further operands, V last.
    masks: masks of visible keys and of tokens.
    forward: maps tiles of B and `others` to a tile of Y.
    backward: maps the same, Y and dY to the gradients of B and V.
    by_queries: see `Tiling`.
  """

  shared: Sequence[_Part]
  local: Sequence[_Part]
  others: Sequence[_Operand]
  masks: Sequence[_Operand]
  forward: Callable[..., tf.Tensor]
  backward: Callable[..., tuple[tf.Tensor, tf.Tensor]]
  by_queries: bool = False

  @property
  def operands(self) -> list[_Operand]:
    operands: list[_Operand] = []
    for part in [*self.shared, *self.local]:
      operands += part.operands
    return [*operands, *self.others, *self.masks]


def _part(call: LayerCall, term: Term) -> _Part:
  if isinstance(term, InnerProduct):
    query = _operand(call, term.query, 'q.', [term.k])
    key = _operand(call, term.key, 'k.', [term.k])
    return _Part([query, key], is_product=True)
  tables = [_operand(call, x, 'qk') for x in factors(term)]
  return _Part(tables, is_product=False)


def _operand(
  call: LayerCall,
  x: mtf.Tensor,
  axes: str,
  others: Sequence[mtf.Dimension] = (),
) -> _Operand:
  """Transposes a tensor to [batch, heads, rows, columns].

  `axes` names its rows and columns, if it has them; `others` are further
  dimensions of its columns. Without a batch or heads, it gets one entry for
  each part of the mesh.
  """
  given = set(x.shape.dims)
  dims_of = {'q': call.length, 'k': [call.memory_length], '.': []}
  layout = 'bh'
  inner = []
  for axis in axes:
    if given.isdisjoint(dims_of[axis]):
      axis = '.'
    layout += axis
    inner.append(dims_of[axis])
  rows, columns = inner
  batch = [d for d in call.batch if d not in others]
  known = []  # the dimensions that x has, or is broadcast to
  groups = []  # the dimensions of each axis
  for dims in (batch, call.heads):
    if given.isdisjoint(dims):
      groups.append([mtf.Dimension(d.name, call.parts(d)) for d in dims])
    else:
      groups.append(dims)
      known += dims
  known += [*rows, *columns, *others]
  groups += [rows, [*columns, *others]]
  trained = x.dtype.is_floating and not isinstance(
    x.operation, mtf.StopGradient
  )
  shape = _merged(groups)
  x = arrange(x, mtf.Shape(known))
  if shape.size == x.size:
    x = mtf.reshape(x, shape)
  else:
    x = mtf.broadcast(x, shape)
  return _Operand(x, _sizes(call, groups), layout, trained)


class _Tiled(mtf.SlicewiseOperation):
  """A slicewise function that works tile by tile on CPUs."""

  _tf_fn: Any

  def lower(self, lowering: mtf.Lowering) -> None:
    single = not on_cpu(lowering.mesh_impl(self))
    self._tf_fn = functools.partial(self._tf_fn, single)
    super().lower(lowering)


def _by_tiles(
  call: LayerCall,
  kernel: _Kernel,
  batch: Sequence[mtf.Dimension],
  columns: Sequence[mtf.Dimension],
) -> mtf.Tensor:
  """Runs a kernel; returns Y, [batch..., length, heads, d_kv].

  The kernel's own result is [batch..., heads, length, columns...], where
  `batch` are the batch dimensions of B.
  """
  groups = [batch, call.heads, call.length, columns]
  y_shape = _merged(groups)
  sizes = _sizes(call, groups)
  operands = kernel.operands
  inputs = [x.tensor for x in operands]
  trained = [x.tensor for x in operands if x.trained]
  used = set(y_shape.dims).union(*(x.shape.dims for x in inputs))
  # An unsplit dimension may be assigned to a mesh axis of size 1.
  splittable = [
    d for d in used if d in [*call.heads, *call.batch] or not call.splits(d)
  ]

  def forward(single: bool, *slices: tf.Tensor) -> tf.Tensor:
    y = _OnDevice(call, kernel, sizes, slices, single).forward()
    return tf.reshape(y, [d.size // call.parts(d) for d in y_shape.dims])

  def backward(single: bool, *slices: tf.Tensor) -> Any:
    *inputs, y, dy = slices
    on_device = _OnDevice(call, kernel, sizes, inputs, single)
    gradients = on_device.backward(y, dy)
    # A slicewise function returns a single tensor as such.
    return tuple(gradients) if len(gradients) > 1 else gradients[0]

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor | None]:
    gradients = _Tiled(
      backward,
      [*op.inputs, op.outputs[0], dy],
      [x.shape for x in trained],
      [x.dtype for x in trained],
      splittable,
    )
    remaining = iter(gradients.outputs)
    return [next(remaining) if x.trained else None for x in operands]

  tiled = _Tiled(forward, inputs, [y_shape], [tf.float32], splittable, gradient)
  return mtf.transpose(
    tiled.outputs[0],
    mtf.Shape([*call.batch, *call.length, *call.heads, call.kv_dim]),
  )


class _OnDevice:
  """A kernel and its operands on one device, cut into tiles."""

  def __init__(
    self,
    call: LayerCall,
    kernel: _Kernel,
    shape: Sequence[int],
    slices: Tensors,
    single: bool,
  ) -> None:
    """Cuts the slices of the operands; `shape` is that of Y."""
    self._kernel = kernel
    self._shape = shape
    b_shape = [*shape[:3], call.memory_length.size]
    self._tiling = Tiling(b_shape, kernel.by_queries, single)
    self._pieces = {
      operand: Pieces(self._tiling, operand.shape, operand.layout, x)
      for operand, x in zip(kernel.operands, slices, strict=True)
    }
    self._windows: Windows | None = None
    if kernel.masks and not single:
      masks = [self._pieces[x] for x in kernel.masks]
      self._windows = Windows(self._tiling, masks)

  def forward(self) -> tf.Tensor:
    """Returns Y, [batch, heads, length, columns]."""
    kernel = self._kernel
    windows = self._windows
    y = Pieces(self._tiling, self._shape, 'bhq.')
    last: list[tf.Tensor] = []
    for slab in self._tiling.slabs:
      with tf.control_dependencies(last):
        shared, _ = self._shared_logits(slab)
      for tile in slab:
        with tf.control_dependencies(last):
          b, _ = self._logits(tile, shared)
          others = self._take(kernel.others, tile, windows)
          last = [y.add(kernel.forward(b, *others), tile, windows)]
    return y.total()

  def backward(self, y: tf.Tensor, dy: tf.Tensor) -> list[tf.Tensor]:
    """Returns the gradients of the trained operands.

    Those of shared parts come from the sum of dB over all examples.
    """
    kernel = self._kernel
    tiling = self._tiling
    windows = self._windows
    b_pieces = Pieces(tiling, [1, *self._shape[1:3], tiling.keys], 'bhqk')
    y_pieces = Pieces(tiling, self._shape, 'bhq.', y)
    dy_pieces = Pieces(tiling, self._shape, 'bhq.', dy)
    values = self._pieces[kernel.others[-1]]
    trains_shared = any(x.trained for p in kernel.shared for x in p.operands)
    last: list[tf.Tensor] = []
    for slab in tiling.slabs:
      with tf.control_dependencies(last):
        shared, shared_operands = self._shared_logits(slab)
      for tile in slab:
        with tf.control_dependencies(last):
          b, local_operands = self._logits(tile, shared)
          others = self._take(kernel.others, tile, windows)
          others.append(y_pieces.take(tile, windows))
          others.append(dy_pieces.take(tile, windows))
          db, dv = kernel.backward(b, *others)
          last = self._add_gradients(
            kernel.local, db, local_operands, tile, windows
          )
          last.append(values.add(dv, tile, windows))
          if trains_shared:
            last.append(b_pieces.add(db, tile, windows))
      if trains_shared:
        slab_db = last[-1]  # the sum over the slab's tiles
        with tf.control_dependencies(last):
          last = self._add_gradients(
            kernel.shared, slab_db, shared_operands, slab[0], None
          )
    return [self._pieces[x].total() for x in kernel.operands if x.trained]

  def _take(
    self, operands: Sequence[_Operand], tile: Tile, windows: Windows | None
  ) -> list[tf.Tensor]:
    return [self._pieces[x].take(tile, windows) for x in operands]

  def _shared_logits(
    self, slab: Sequence[Tile]
  ) -> tuple[tf.Tensor | None, Sequence[Tensors]]:
    """Returns the sum of the shared parts, if any, and their operands."""
    parts = self._kernel.shared
    operands = [self._take(part.operands, slab[0], None) for part in parts]
    values = _values(parts, operands)
    total = functools.reduce(tf.add, values) if values else None
    return total, operands

  def _logits(
    self, tile: Tile, shared: tf.Tensor | None
  ) -> tuple[tf.Tensor, Sequence[Tensors]]:
    """Returns windows of B and of the operands of its local parts."""
    parts = self._kernel.local
    windows = self._windows
    operands = [self._take(part.operands, tile, windows) for part in parts]
    values = _values(parts, operands)
    if shared is not None:
      if windows:
        shared = windows.view(tile, shared, 'bhqk')
      values.append(shared)
    return functools.reduce(tf.add, values), operands

  def _add_gradients(
    self,
    parts: Sequence[_Part],
    db: tf.Tensor,
    operands: Sequence[Tensors],
    tile: Tile,
    windows: Windows | None,
  ) -> list[tf.Tensor]:
    """Adds a tile to the parts' gradients and returns the sums so far."""
    sums = []
    for part, tensors in zip(parts, operands, strict=True):
      gradients = part.gradients(db, tensors)
      for operand, dx in zip(part.operands, gradients, strict=True):
        if operand.trained:
          sums.append(self._pieces[operand].add(dx, tile, windows))
    return sums


def _values(
  parts: Sequence[_Part], operands: Sequence[Tensors]
) -> list[tf.Tensor]:
  """Returns tiles of parts of B, the smallest first.

  Added in this order, intermediate sums stay small.
  """
  values = [
    part.value(tensors) for part, tensors in zip(parts, operands, strict=True)
  ]
  values.sort(key=lambda x: sum(n != 1 for n in x.shape.as_list()))
  return values


def _merged(groups: Sequence[Sequence[mtf.Dimension]]) -> mtf.Shape:
  """Returns the shape with the dimensions of all groups."""
  return mtf.Shape([d for dims in groups for d in dims])


def _sizes(
  call: LayerCall, groups: Sequence[Sequence[mtf.Dimension]]
) -> list[int]:
  """Returns the size of each group of dimensions, merged, on a device."""
  return [math.prod(d.size // call.parts(d) for d in dims) for dims in groups]
