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
import itertools
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
from synth_mtf.core.softmax import divide_rows, exp_from, row_center
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.cpu.tiles import Pieces, Tile, Tiling, Windows

Tensors = Sequence[tf.Tensor]


def can_attend(call: LayerCall, logits: Logits, values: mtf.Tensor) -> bool:
  """Whether a call can be tiled.

  Rows must be in float32 and whole on each device, and B must depend on the
  head, the query and the key. On a TPU, XLA fuses the separate operations by
  itself.
  """
  whole = [*call.length, call.memory_length, call.kv_dim]
  dims = set().union(*map(dims_of, logits.terms))
  return (
    bool(call.length)
    and not is_tpu(values.mesh)
    and not call.context.model.ensemble_dims
    and values.dtype == call.logits_dtype == tf.float32
    and {*call.heads, *call.length, call.memory_length} <= dims
    and not any(map(call.splits, whole))
  )


def attend_each(
  call: LayerCall, logits: Logits, visibility: Visibility, values: mtf.Tensor
) -> mtf.Tensor:
  """Computes softmax(B) V where each example has its own B.

  W = softmax(B)     Y = W V
  dB = W ([dY, -sum_d dY Y] [V, 1]^T)     dV = W^T dY
  """

  def forward(b: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.nn.softmax(b), v)

  def backward(
    b: tf.Tensor, v: tf.Tensor, y: tf.Tensor, dy: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    w = tf.nn.softmax(b)
    minus_total = -tf.reduce_sum(dy * y, axis=-1, keepdims=True)
    dy_v = tf.matmul(
      tf.concat([dy, minus_total], axis=-1),
      tf.pad(v, [[0, 0], [0, 0], [0, 0], [0, 1]], constant_values=1.0),
      transpose_b=True,
    )
    return w * dy_v, tf.matmul(w, dy, transpose_a=True)

  logits = add(call, [*logits.terms, *visibility.biases(tf.float32)])
  operand = functools.partial(_operand, call)
  kernel = _Kernel(
    shared=[_part(term, operand) for term in logits.shared],
    local=[_part(term, operand) for term in logits.local],
    others=[operand(values, 'k.', [call.kv_dim])],
    masks=[operand(mtf.cast(x, tf.int32), 'qk') for x in visibility.masks],
    forward=forward,
    backward=backward,
    # Neighbouring queries see nearly the same keys.
    by_queries=visibility.pairs is not None,
  )
  return _by_tiles(call, kernel, call.batch, [call.kv_dim])


def attend_shared(
  call: LayerCall, logits: Logits, visibility: Visibility, values: mtf.Tensor
) -> mtf.Tensor:
  """Computes softmax(B) V where all examples share B and the visible pairs.

      E = exp(B - c), 0 where hidden     T = E nonpad     Y = (E V) / T
      dX = dY / T     dT = -sum_d dX Y
      dB = E (dX V^T + dT nonpad^T)     dV = E^T dX

  where V is 0 at padding, and c, the center of each row (`row_center`),
  cancels. E is computed once and multiplied by the concatenated values of all
  examples.
  """
  values = zero_hidden(values, visibility.keys)
  columns = [*call.batch, call.kv_dim]
  # nonpad has head dimensions only if V does.
  heads = [d for d in call.heads if d in values.shape.dims]
  of_heads = mtf.Shape([*call.batch, *heads, call.memory_length])
  nonpad = (
    mtf.ones(values.mesh, of_heads)
    if visibility.keys is None
    else visibility.keys
  )
  nonpad = mtf.stop_gradient(mtf.broadcast(nonpad, of_heads))
  d_kv = call.kv_dim.size

  def examples(x: tf.Tensor) -> tf.Tensor:
    """Splits [1, heads, rows, batch * d_kv] into [..., batch, d_kv]."""
    return tf.reshape(x, [1, x.shape[1], -1, x.shape[3] // d_kv, d_kv])

  def side_by_side(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [1, x.shape[1], -1, x.shape[3] * d_kv])

  def exp(b: tf.Tensor, seen: Tensors) -> tf.Tensor:
    seen = [tf.cast(x, tf.bool) for x in seen]
    return exp_from(b, row_center(b, *seen), *seen)

  def forward(b: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    *seen, nonpad, v = others
    e = exp(b, seen)
    x, total = tf.matmul(e, v), tf.matmul(e, nonpad)
    return side_by_side(divide_rows(examples(x), total))

  def backward(b: tf.Tensor, *others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    *seen, nonpad, v, y, dy = others
    e = exp(b, seen)
    dx = divide_rows(examples(dy), tf.matmul(e, nonpad))
    dtotal = -tf.reduce_sum(dx * examples(y), axis=-1)
    dx = side_by_side(dx)
    de = tf.matmul(
      tf.concat([dx, dtotal], axis=-1),
      tf.concat([v, nonpad], axis=-1),
      transpose_b=True,
    )
    return e * de, tf.matmul(e, dx, transpose_a=True)

  # A key is seen if any example sees it.
  masks = [
    mtf.reduce_max(
      mtf.cast(x, tf.int32),
      output_shape=mtf.Shape([d for d in x.shape.dims if d not in call.batch]),
    )
    for x in visibility.masks
  ]
  operand = functools.partial(_operand, call)
  pairs = [] if visibility.pairs is None else masks[:1]
  kernel = _Kernel(
    shared=[_part(term, operand) for term in logits.shared],
    local=[],
    others=[
      *(operand(x, 'qk') for x in pairs),
      operand(nonpad, 'k.', call.batch),
      operand(values, 'k.', columns),
    ],
    masks=[operand(x, 'qk') for x in masks],
    forward=forward,
    backward=backward,
  )
  return _by_tiles(call, kernel, [], columns)


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

  def value(self, tiles: Tensors) -> tf.Tensor:
    if self.is_product:
      return _matmul(*tiles, transpose_b=True)
    return functools.reduce(tf.multiply, tiles)

  def gradients(self, db: tf.Tensor, tiles: Tensors) -> Tensors:
    """Returns the operands' gradients, not yet summed over broadcast axes."""
    if len(tiles) == 1:
      return [db]
    x, y = tiles
    if self.is_product:
      return [_matmul(db, y), _matmul(tf.linalg.matrix_transpose(db), x)]
    return [db * y, db * x]


def _matmul(
  x: tf.Tensor, y: tf.Tensor, *, transpose_b: bool = False
) -> tf.Tensor:
  """Multiplies x [b, h, m, k] by y, as one product of matrices if y is shared.

  For x [b, 1, m, k] and y [1, 1, k, n], TensorFlow 2.21's oneDNN would write
  beyond its arrays (https://github.com/tensorflow/tensorflow/issues/117700).
  """
  if y.shape[:2] != [1, 1]:
    return tf.matmul(x, y, transpose_b=transpose_b)
  matrix = 'nk' if transpose_b else 'kn'
  return tf.einsum(f'bhmk,{matrix}->bhmn', x, y[0, 0])


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
    parts = (part.operands for part in [*self.shared, *self.local])
    return [*itertools.chain(*parts, self.others, self.masks)]


def _part(term: Term, operand: Callable[..., _Operand]) -> _Part:
  if isinstance(term, InnerProduct):
    rows = zip(factors(term), ['q.', 'k.'], strict=True)
    pair = [operand(x, axes, [term.k]) for x, axes in rows]
    return _Part(pair, is_product=True)
  return _Part([operand(x, 'qk') for x in factors(term)], is_product=False)


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
  of_axes = {'q': call.length, 'k': [call.memory_length], '.': []}
  given = set(x.shape.dims)
  rows, columns = (a if given & set(of_axes[a]) else '.' for a in axes)
  inner = [of_axes[rows], [*of_axes[columns], *others]]
  outer = [[d for d in call.batch if d not in others], call.heads]
  present = [dims for dims in outer if given & set(dims)]
  batch, heads = (
    dims
    if dims in present
    else [mtf.Dimension(d.name, call.parts(d)) for d in dims]
    for dims in outer
  )
  groups = [batch, heads, *inner]
  trained = x.dtype.is_floating and not isinstance(
    x.operation, mtf.StopGradient
  )
  shape = mtf.Shape([*itertools.chain(*groups)])
  known = [*itertools.chain(*present, *inner)]
  x = arrange(x, mtf.Shape([d for d in shape.dims if d in known]))
  x = mtf.reshape(x, shape) if shape.size == x.size else mtf.broadcast(x, shape)
  return _Operand(x, _sizes(call, groups), f'bh{rows}{columns}', trained)


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
  dims, shape = [*itertools.chain(*groups)], _sizes(call, groups)
  operands = kernel.operands
  inputs = [x.tensor for x in operands]
  trained = [x.tensor for x in operands if x.trained]
  # An unsplit dimension may be assigned to a mesh axis of size 1.
  used = {*dims, *itertools.chain(*(x.shape.dims for x in inputs))}
  splittable = [
    d for d in used if d in [*call.heads, *call.batch] or not call.splits(d)
  ]

  def forward(single: bool, *slices: tf.Tensor) -> tf.Tensor:
    y = _OnDevice(call, kernel, shape, slices, single).forward()
    return tf.reshape(y, _sizes(call, [[d] for d in dims]))

  def backward(single: bool, *slices: tf.Tensor) -> Any:
    *inputs, y, dy = slices
    found = _OnDevice(call, kernel, shape, inputs, single).backward(y, dy)
    return tuple(found) if len(found) > 1 else found[0]

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor | None]:
    shapes, dtypes = [x.shape for x in trained], [x.dtype for x in trained]
    given = [*op.inputs, op.outputs[0], dy]
    found = iter(_Tiled(backward, given, shapes, dtypes, splittable).outputs)
    return [next(found) if x.trained else None for x in operands]

  shapes, dtypes = [mtf.Shape(dims)], [tf.float32]
  (y,) = _Tiled(forward, inputs, shapes, dtypes, splittable, gradient).outputs
  return mtf.transpose(
    y, mtf.Shape([*call.batch, *call.length, *call.heads, call.kv_dim])
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
    self._kernel, self._shape = kernel, shape
    b_shape = [*shape[:3], call.memory_length.size]
    self._tiling = Tiling(b_shape, kernel.by_queries, single)
    self._pieces = {
      operand: Pieces(self._tiling, operand.shape, operand.layout, x)
      for operand, x in zip(kernel.operands, slices, strict=True)
    }
    masks = [] if single else [self._pieces[x] for x in kernel.masks]
    self._windows = Windows(self._tiling, masks) if masks else None

  def forward(self) -> tf.Tensor:
    """Returns Y, [batch, heads, length, columns]."""
    kernel, tiling, windows = self._kernel, self._tiling, self._windows
    y = Pieces(tiling, self._shape, 'bhq.')
    last: list[tf.Tensor] = []
    for slab in tiling.slabs:
      with tf.control_dependencies(last):
        shared, _ = self._sum(kernel.shared, slab[0], None)
      for tile in slab:
        with tf.control_dependencies(last):
          (b,), _ = self._sum(kernel.local, tile, windows, shared)
          others = self._take(kernel.others, tile, windows)
          last = [y.add(kernel.forward(b, *others), tile, windows)]
    return y.total()

  def backward(self, y: tf.Tensor, dy: tf.Tensor) -> list[tf.Tensor]:
    """Returns the gradients of the trained operands.

    Those of shared parts come from the sum of dB over all examples.
    """
    kernel, tiling, windows = self._kernel, self._tiling, self._windows
    b_pieces = Pieces(tiling, [1, *self._shape[1:3], tiling.keys], 'bhqk')
    given = [Pieces(tiling, self._shape, 'bhq.', x) for x in (y, dy)]
    values = self._pieces[kernel.others[-1]]
    trains_shared = any(x.trained for p in kernel.shared for x in p.operands)
    last: list[tf.Tensor] = []
    for slab in tiling.slabs:
      with tf.control_dependencies(last):
        shared, shared_xs = self._sum(kernel.shared, slab[0], None)
      for tile in slab:
        with tf.control_dependencies(last):
          (b,), xs = self._sum(kernel.local, tile, windows, shared)
          others = self._take(kernel.others, tile, windows)
          others += [x.take(tile, windows) for x in given]
          db, dv = kernel.backward(b, *others)
          last = self._add_gradients(kernel.local, db, xs, tile, windows)
          last.append(values.add(dv, tile, windows))
          if trains_shared:
            last.append(b_pieces.add(db, tile, windows))
      if trains_shared:
        *_, slab_db = last  # the sum over the slab's tiles
        with tf.control_dependencies(last):
          last = self._add_gradients(
            kernel.shared, slab_db, shared_xs, slab[0], None
          )
    return [self._pieces[x].total() for x in kernel.operands if x.trained]

  def _take(
    self, operands: Sequence[_Operand], tile: Tile, windows: Windows | None
  ) -> list[tf.Tensor]:
    return [self._pieces[x].take(tile, windows) for x in operands]

  def _sum(
    self,
    parts: Sequence[_Part],
    tile: Tile,
    windows: Windows | None,
    shared: Tensors = (),
  ) -> tuple[list[tf.Tensor], Sequence[Tensors]]:
    """Returns windows of the sum of parts and of their operands.

    The sum is a list, which is empty if there are no parts. It includes the sum
    of shared parts, if given.
    """
    xs = [self._take(part.operands, tile, windows) for part in parts]
    values = [part.value(tiles) for part, tiles in zip(parts, xs, strict=True)]
    # Adding the smallest first keeps intermediate sums small.
    values.sort(key=lambda x: sum(n != 1 for n in x.shape.as_list()))
    values += [windows.view(tile, x, 'bhqk') if windows else x for x in shared]
    return [functools.reduce(tf.add, values)] if values else [], xs

  def _add_gradients(
    self,
    parts: Sequence[_Part],
    db: tf.Tensor,
    xs: Sequence[Tensors],
    tile: Tile,
    windows: Windows | None,
  ) -> list[tf.Tensor]:
    """Adds a tile to the parts' gradients and returns the sums so far."""
    return [
      self._pieces[operand].add(dx, tile, windows)
      for part, tiles in zip(parts, xs, strict=True)
      for operand, dx in zip(
        part.operands, part.gradients(db, tiles), strict=True
      )
      if operand.trained
    ]


def _sizes(call: LayerCall, groups: Any) -> list[int]:
  """Returns the size of each group of dimensions, merged, on a device."""
  return [math.prod(d.size // call.parts(d) for d in dims) for dims in groups]
