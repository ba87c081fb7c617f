"""Computes softmax(B) V on CPUs, one tile of B at a time.

B is a sum of terms: products, tables, masks. `cpu.tiles` cuts it into tiles
that fit in the processor's cache. Tiles are recomputed for the gradient, so
that nothing as large as B is materialized, except for an input table of that
size and its gradient. Each operand is transposed once, to

    [batch, heads, length or memory_length, k or memory_length]

with size 1 for dimensions that it lacks, so that all products are plain batched
products and all sums broadcast.

A mesh may split the batch and the heads. On devices other than CPUs, B is a
single tile.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange, is_tpu, on_cpu
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import (
  InnerProduct,
  Logits,
  Scaled,
  Term,
  add,
  dims_of,
)
from synth_mtf.core.visibility import Visibility
from synth_mtf.cpu.tiles import Pieces, Tile, Tiling, Windows, find_windows

Tensors = Sequence[tf.Tensor]


def can_attend(call: LayerCall, values: mtf.Tensor) -> bool:
  """Whether a call can be tiled: unsplit rows in float32, not on a TPU.

  On a TPU, XLA generates such a program from separate operations by itself.
  """
  whole = [*call.length, call.memory_length, call.kv_dim]
  return (
    bool(call.length)
    and not is_tpu(values.mesh)
    and not call.context.model.ensemble_dims
    and values.dtype == call.logits_dtype == tf.float32
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

  terms = add(call, [*logits.terms, *visibility.biases(tf.float32)]).terms
  # Neighbouring queries see nearly the same keys.
  by_queries = visibility.pairs is not None
  operand = functools.partial(_operand, call, by_queries)
  kernel = _Kernel(
    _parts(call, terms, values, call.batch, operand),
    others=[operand(values, 'k.', [call.kv_dim])],
    masks=[operand(mtf.cast(x, tf.int32), 'qk') for x in visibility.masks],
    forward=forward,
    backward=backward,
    by_queries=by_queries,
  )
  return _by_tiles(call, kernel, call.batch, [call.kv_dim])


def attend_shared(
  call: LayerCall, logits: Logits, visibility: Visibility, values: mtf.Tensor
) -> mtf.Tensor:
  """Computes softmax(B) V where all examples share B and the visible pairs.

      E = exp(B - c), 0 where hidden     T = E nonpad     Y = (E V) / T
      dX = dY / T     dT = -sum_d dX Y
      dB = E (dX V^T + dT nonpad^T)     dV = E^T dX

  where V is 0 at padding, and c, the center of each row (`kernels.row_center`),
  cancels. E is computed once and multiplied by the concatenated values of all
  examples.
  """
  pairs, nonpad = visibility.pairs, visibility.keys
  if nonpad is not None:
    values *= mtf.cast(nonpad, values.dtype)
  columns = [*call.batch, call.kv_dim]
  # nonpad has head dimensions only if V does.
  heads = call.heads if set(call.heads) & set(values.shape.dims) else []
  of_heads = mtf.Shape([*call.batch, *heads, call.memory_length])
  if nonpad is None:
    nonpad = mtf.ones(values.mesh, of_heads)
  nonpad = mtf.stop_gradient(mtf.broadcast(nonpad, of_heads))
  d_kv = call.kv_dim.size

  def examples(x: tf.Tensor) -> tf.Tensor:
    """Splits [1, heads, rows, batch * d_kv] into [..., batch, d_kv]."""
    _, heads, _, columns = x.shape
    return tf.reshape(x, [1, heads, -1, columns // d_kv, d_kv])

  def side_by_side(x: tf.Tensor) -> tf.Tensor:
    _, heads, _, examples, _ = x.shape
    return tf.reshape(x, [1, heads, -1, examples * d_kv])

  def exp(b: tf.Tensor, seen: Tensors) -> tf.Tensor:
    return kernels.exp_from(b, kernels.row_center(b, *seen), *seen)

  def forward(b: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    *seen, nonpad, v = others
    e = exp(b, seen)
    x, total = tf.matmul(e, v), tf.matmul(e, nonpad)
    return side_by_side(kernels.divide_rows(examples(x), total))

  def backward(b: tf.Tensor, *others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    *seen, nonpad, v, y, dy = others
    e = exp(b, seen)
    dx = kernels.divide_rows(examples(dy), tf.matmul(e, nonpad))
    dtotal = -tf.reduce_sum(dx * examples(y), axis=-1)
    dx = side_by_side(dx)
    de = tf.matmul(
      tf.concat([dx, dtotal], axis=-1),
      tf.concat([v, nonpad], axis=-1),
      transpose_b=True,
    )
    return e * de, tf.matmul(e, dx, transpose_a=True)

  operand = functools.partial(_operand, call, False)
  # A key is seen if any example sees it.
  masks = [
    mtf.reduce_max(
      mtf.cast(x, tf.int32),
      output_shape=mtf.Shape([d for d in x.shape.dims if d not in call.batch]),
    )
    for x in visibility.masks
  ]
  kernel = _Kernel(
    _parts(call, logits.shared, values, [], operand),
    others=[
      *([] if pairs is None else [operand(pairs, 'qk')]),
      operand(nonpad, 'k.', call.batch),
      operand(values, 'k.', columns),
    ],
    masks=[operand(x, 'qk') for x in masks],
    forward=forward,
    backward=backward,
  )
  return _by_tiles(call, kernel, [], columns)


class _Operand(NamedTuple):
  """A tensor in the layout that kernels expect.

  Attributes:
    tensor: the tensor, with its dimensions in the order of the layout.
    ranks: the number of dimensions in each axis of the layout.
    layout: see `cpu.tiles`.
    trained: whether it may need a gradient.
  """

  tensor: mtf.Tensor
  ranks: Sequence[int]
  layout: str
  trained: bool


def _operand(
  call: LayerCall,
  by_queries: bool,
  x: mtf.Tensor,
  axes: str,
  others: Sequence[mtf.Dimension] = (),
) -> _Operand:
  """Transposes a tensor to [batch, heads, rows, columns].

  `axes` names its rows and columns, if it has them; `others` are further
  dimensions of its columns. Without a batch or heads, it gets one entry for
  each part of the mesh. A gathered table has its heads last. If tiles have all
  heads, it keeps that order, and tiles are transposed one by one instead.
  """
  of_axes = {'q': call.length, 'k': [call.memory_length], '.': []}
  given = set(x.shape.dims)
  rows, columns = (a if given & set(of_axes[a]) else '.' for a in axes)
  heads_last = (
    by_queries
    and '.' not in rows + columns
    and bool(call.heads)
    and x.shape.dims[-len(call.heads) :] == call.heads
  )
  inner = [of_axes[rows], [*of_axes[columns], *others]]
  present, filled = [], []
  for dims in [d for d in call.batch if d not in others], call.heads:
    present.append(dims if given & set(dims) else [])
    parts = [mtf.Dimension(d.name, call.parts(d)) for d in dims]
    filled.append(present[-1] or parts)

  def in_order(
    batch: list[mtf.Dimension], heads: list[mtf.Dimension]
  ) -> list[list[mtf.Dimension]]:
    return [batch, *inner, heads] if heads_last else [batch, heads, *inner]

  trained = x.dtype.is_floating and not isinstance(
    x.operation, mtf.StopGradient
  )
  groups = in_order(*filled)
  shape = mtf.Shape(_chain(groups))
  x = arrange(x, mtf.Shape(_chain(in_order(*present))))
  if shape.size == x.size:
    x = mtf.reshape(x, shape)
  else:  # the host broadcasts only numbers
    x = mtf.cast(mtf.broadcast(mtf.cast(x, tf.float32), shape), x.dtype)
  layout = f'b{rows}{columns}h' if heads_last else f'bh{rows}{columns}'
  return _Operand(x, [*map(len, groups)], layout, trained)


class _Part(NamedTuple):
  """A term of B: a table T, alpha T, or a product Q K^T.

  Attributes:
    operands: `_Operand`s, or their `Pieces` on a device.
    is_product: whether it is Q K^T.
    is_shared: whether all examples share it, so that it is summed only once.
  """

  operands: Sequence[Any]
  is_product: bool
  is_shared: bool

  def value(self, tiles: Tensors) -> tf.Tensor:
    if self.is_product:
      query, key = tiles
      return tf.matmul(query, key, transpose_b=True)
    return functools.reduce(tf.multiply, tiles)

  def gradients(self, db: tf.Tensor, tiles: Tensors) -> Tensors:
    """Returns the operands' gradients, not yet summed over broadcast axes."""
    if len(tiles) == 1:
      return [db]
    x, y = tiles
    if self.is_product:
      return [tf.matmul(db, y), tf.matmul(db, x, transpose_a=True)]
    return [db * y, db * x]


def _parts(
  call: LayerCall,
  terms: Sequence[Term],
  values: mtf.Tensor,
  batch: Sequence[mtf.Dimension],
  operand: Callable[..., _Operand],
) -> list[_Part]:
  """Converts the terms of B to parts.

  Adds zeros if the terms lack a dimension: rows, columns or, if V has none,
  heads.
  """
  dims = {*call.length, call.memory_length}
  if not set(call.heads) & set(values.shape.dims):
    dims.update(call.heads)
  if not dims <= set().union(*map(dims_of, terms)):
    shape = mtf.Shape([d for d in call.local if d in dims])
    terms = [*terms, mtf.stop_gradient(mtf.zeros(values.mesh, shape))]

  def operands(term: Term) -> list[_Operand]:
    if isinstance(term, InnerProduct):
      k = [term.k]
      return [operand(term.query, 'q.', k), operand(term.key, 'k.', k)]
    if isinstance(term, Scaled):
      return [operand(term.table, 'qk'), operand(term.alpha, '..')]
    return [operand(term, 'qk')]

  return [
    _Part(
      operands(term),
      is_product=isinstance(term, InnerProduct),
      is_shared=not dims_of(term) & set(batch),
    )
    for term in terms
  ]


class _Kernel(NamedTuple):
  """The computation for one tile.

  Attributes:
    parts: the parts of B.
    others: further operands, V last.
    masks: masks of visible keys and of tokens.
    forward: maps tiles of B and `others` to a tile of Y.
    backward: maps the same, Y and dY to the gradients of B and V.
    by_queries: see `Tiling`.
  """

  parts: Sequence[_Part]
  others: Sequence[_Operand]
  masks: Sequence[_Operand]
  forward: Callable[..., tf.Tensor]
  backward: Callable[..., tuple[tf.Tensor, tf.Tensor]]
  by_queries: bool = False

  @property
  def operands(self) -> list[_Operand]:
    parts = _chain(part.operands for part in self.parts)
    return [*parts, *self.others, *self.masks]


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
  groups = batch, call.heads, call.length, columns
  ranks, dims = [*map(len, groups)], _chain(groups)
  shape = [
    math.prod(d.size // call.parts(d) for d in dims)
    for dims in (batch, call.heads, call.length, [call.memory_length])
  ]
  operands = kernel.operands
  inputs = [x.tensor for x in operands]
  trained = [x.tensor for x in operands if x.trained]
  used = {*dims, *(d for x in inputs for d in x.shape.dims)}
  # An unsplit dimension may be assigned to a mesh axis of size 1.
  whole = [d for d in used if not call.splits(d)]
  splittable = [*call.heads, *call.batch, *whole]

  def forward(single: bool, *slices: tf.Tensor) -> tf.Tensor:
    y = _OnDevice(kernel, shape, slices, single).forward()
    return tf.reshape(y, [d.size // call.parts(d) for d in dims])

  def backward(single: bool, *slices: tf.Tensor) -> Any:
    *inputs, y, dy = slices
    on_device = _OnDevice(kernel, shape, inputs, single)
    found = on_device.backward(_flat(y, ranks), _flat(dy, ranks))
    xs = [x for x, o in zip(inputs, operands) if o.trained]
    shaped = [tf.reshape(dx, x.shape) for dx, x in zip(found, xs)]
    return tuple(shaped) if len(shaped) > 1 else shaped[0]

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[Optional[mtf.Tensor]]:
    found = iter(
      _Tiled(
        backward,
        [*op.inputs, op.outputs[0], dy],
        [x.shape for x in trained],
        [x.dtype for x in trained],
        splittable,
      ).outputs
    )
    return [next(found) if x.trained else None for x in operands]

  operation = _Tiled(
    forward, inputs, [mtf.Shape(dims)], [tf.float32], splittable, gradient
  )
  return mtf.transpose(
    operation.outputs[0],
    mtf.Shape([*call.batch, *call.length, *call.heads, call.kv_dim]),
  )


class _OnDevice:
  """A kernel with one device's slices of its operands."""

  def __init__(
    self,
    kernel: _Kernel,
    shape: Sequence[int],
    slices: Tensors,
    single: bool,
  ) -> None:
    self._kernel = kernel
    self._shape = shape
    self._tiling = tiling = Tiling(shape, kernel.by_queries, single)
    operands = kernel.operands
    flat = [_flat(x, o.ranks) for x, o in zip(slices, operands)]
    pieces = [
      Pieces(tiling, x.shape.as_list(), o.layout, x)
      for x, o in zip(flat, operands)
    ]
    self._trained = [x for x, o in zip(pieces, operands) if o.trained]
    rest = iter(pieces)
    parts = [
      part._replace(operands=[next(rest) for _ in part.operands])
      for part in kernel.parts
    ]
    self._shared = [part for part in parts if part.is_shared]
    self._local = [part for part in parts if not part.is_shared]
    self._others = [next(rest) for _ in kernel.others]
    self._seen = find_windows(tiling, [] if single else [*rest])
    self._whole = Windows(tiling)

  def forward(self) -> tf.Tensor:
    """Y, [batch, heads, length, columns]."""
    *_, columns = self._others[-1].piece
    total = Pieces(self._tiling, [*self._shape[:3], columns], 'bhq.')
    last: list[tf.Tensor] = []
    for slab in self._tiling.slabs:
      with tf.control_dependencies(last):
        shared, _ = _sum(self._shared, slab[0], self._whole)
      for tile in slab:
        with tf.control_dependencies(last):
          b, _ = self._b(tile, shared)
          others = [x.take(tile, self._seen) for x in self._others]
          y = self._kernel.forward(b, *others)
          last = [total.add(y, tile, self._seen)]
    return total.total()

  def backward(self, y: tf.Tensor, dy: tf.Tensor) -> list[tf.Tensor]:
    results = [
      Pieces(self._tiling, x.shape.as_list(), 'bhq.', x) for x in (y, dy)
    ]
    b_pieces = Pieces(self._tiling, [1, *self._shape[1:]], 'bhqk')
    trained = {*self._trained}
    trains_shared = any(trained & {*part.operands} for part in self._shared)
    last: list[tf.Tensor] = []
    for slab in self._tiling.slabs:
      with tf.control_dependencies(last):
        shared, given = _sum(self._shared, slab[0], self._whole)
      slab_db: Optional[tf.Tensor] = None
      for tile in slab:
        with tf.control_dependencies(last):
          b, xs = self._b(tile, shared)
          others = [x.take(tile, self._seen) for x in [*self._others, *results]]
          db, dv = self._kernel.backward(b, *others)
          last = self._add(self._local, db, xs, tile, self._seen)
          if self._others[-1] in trained:
            last.append(self._others[-1].add(dv, tile, self._seen))
          if trains_shared:
            db = b_pieces.put(db, tile, self._seen)
            slab_db = db if slab_db is None else slab_db + db
            last.append(slab_db)
      if slab_db is not None:
        with tf.control_dependencies(last):
          last = self._add(self._shared, slab_db, given, slab[0], self._whole)
    return [x.total() for x in self._trained]

  def _b(
    self, tile: Tile, shared: Optional[tf.Tensor]
  ) -> tuple[tf.Tensor, Sequence[Tensors]]:
    """Returns the windows of B and of its local parts' operands."""
    b, xs = _sum(self._local, tile, self._seen)
    if shared is not None:
      sizes = zip('qk', shared.shape[2:])
      layout = 'bh' + ''.join(axis if n > 1 else '.' for axis, n in sizes)
      shared = self._seen.view(tile.window, shared, layout)
      b = shared if b is None else b + shared
    return b, xs

  def _add(
    self,
    parts: Sequence[_Part],
    db: tf.Tensor,
    xs: Sequence[Tensors],
    tile: Tile,
    windows: Windows,
  ) -> list[tf.Tensor]:
    """Adds a tile to the parts' gradients and returns the sums so far."""
    return [
      operand.add(dx, tile, windows)
      for part, tiles in zip(parts, xs)
      for operand, dx in zip(part.operands, part.gradients(db, tiles))
      if operand in self._trained
    ]


def _sum(
  parts: Sequence[_Part], tile: Tile, windows: Windows
) -> tuple[Optional[tf.Tensor], Sequence[Tensors]]:
  """Returns windows of the sum (None without parts) and of the operands."""
  xs = [[x.take(tile, windows) for x in part.operands] for part in parts]
  values = [part.value(tiles) for part, tiles in zip(parts, xs)]
  # Adding the smallest first keeps intermediate sums small.
  values.sort(key=lambda x: sum(n != 1 for n in x.shape.as_list()))
  return functools.reduce(tf.add, values) if values else None, xs


def _chain(groups: Any) -> list[Any]:
  return [*itertools.chain(*groups)]


def _flat(x: tf.Tensor, ranks: Sequence[int]) -> tf.Tensor:
  """Merges dimensions; axis i of the result merges `ranks[i]` of them."""
  sizes = iter(x.shape.as_list())
  return tf.reshape(x, [math.prod(itertools.islice(sizes, n)) for n in ranks])
