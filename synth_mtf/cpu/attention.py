"""softmax(B) V on CPUs, one tile of B after the other.

B is a sum of terms: products, tables, masks. A tile of it fits into the
processor's cache: it is made, used and forgotten, and made again for the
gradient. Nothing as large as B is ever made, except a table that is given and
its gradient. `cpu.tiles` cuts B into tiles, and `cpu.windows` leaves out what
no query of a tile sees. Each operand is transposed once, to

    [batch, heads, length or memory_length, k or memory_length]

with size 1 where it does not depend on a dimension, so that all products are
plain batched ones and all sums broadcast.

A mesh may split the batch and the heads. If its devices are not CPUs, a single
tile is all of B.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, TypeVar

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange, is_tpu
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
from synth_mtf.cpu.devices import on_cpu
from synth_mtf.cpu.tiles import Cut, Pieces, Sum, Tile, Tiling
from synth_mtf.cpu.windows import Windows

Tensors = Sequence[tf.Tensor]
MaybeTensors = Sequence[Optional[tf.Tensor]]
_T = TypeVar('_T')


def can_attend(call: LayerCall, values: mtf.Tensor) -> bool:
  """Whether a call can be by tiles: whole rows in float32, not on a TPU.

  A TPU's compiler makes such a program by itself, from single steps.
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
  """`attend` where each example has its own B.

  W = softmax(B)     Y = W V
  dB = W ([dY, -sum_d dY Y] [V, 1]^T)     dV = W^T dY
  """

  def forward(b: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.nn.softmax(b), v)

  def backward(
    b: tf.Tensor, v: tf.Tensor, y: tf.Tensor, dy: tf.Tensor
  ) -> MaybeTensors:
    w = tf.nn.softmax(b)
    minus_total = -tf.reduce_sum(dy * y, axis=-1, keepdims=True)
    dy_v = tf.matmul(
      tf.concat([dy, minus_total], axis=-1),
      tf.pad(v, [[0, 0], [0, 0], [0, 0], [0, 1]], constant_values=1.0),
      transpose_b=True,
    )
    return w * dy_v, tf.matmul(w, dy, transpose_a=True)

  terms = add(call, [*logits.terms, *visibility.biases(tf.float32)]).terms
  # Neighbouring queries see about the same.
  by_queries = visibility.pairs is not None
  operand = functools.partial(_operand, call, by_queries)
  kernel = _Kernel(
    *_parts(call, terms, values, call.batch, operand),
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
  """`attend_each` where B and visible pairs depend on no example.

      E = exp(B - c), 0 where hidden     T = E nonpad     Y = (E V) / T
      dX = dY / T     dT = -sum_d dX Y
      dB = E (dX V^T + dT nonpad^T)     dV = E^T dX

  with V 0 at padding, and c the center of each row (`kernels.row_center`),
  which cancels. E is computed once: the values of all examples stand side by
  side.
  """
  pairs, nonpad = visibility.pairs, visibility.keys
  if nonpad is not None:
    values *= mtf.cast(nonpad, values.dtype)
  columns = [*call.batch, call.kv_dim]
  # A column of V for each head of it, and so of nonpad.
  heads = call.heads if set(call.heads) & set(values.shape.dims) else []
  of_heads = mtf.Shape([*call.batch, *heads, call.memory_length])
  if nonpad is None:
    nonpad = mtf.ones(values.mesh, of_heads)
  nonpad = mtf.stop_gradient(mtf.broadcast(nonpad, of_heads))
  d_kv = call.kv_dim.size

  def examples(x: tf.Tensor) -> tf.Tensor:
    """[1, heads, rows, batch * d_kv] as [1, heads, rows, batch, d_kv]."""
    _, heads, _, columns = x.shape
    return tf.reshape(x, [1, heads, -1, columns // d_kv, d_kv])

  def side_by_side(x: tf.Tensor) -> tf.Tensor:
    """The reverse."""
    _, heads, _, examples, _ = x.shape
    return tf.reshape(x, [1, heads, -1, examples * d_kv])

  def exp(b: tf.Tensor, seen: Tensors) -> tf.Tensor:
    return kernels.exp_from(b, kernels.row_center(b, *seen), *seen)

  def forward(b: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    *seen, nonpad, v = others
    e = exp(b, seen)
    x, total = tf.matmul(e, v), tf.matmul(e, nonpad)
    return side_by_side(kernels.divide_rows(examples(x), total))

  def backward(b: tf.Tensor, *others: tf.Tensor) -> MaybeTensors:
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
    dv = tf.matmul(e, dx, transpose_a=True)
    return (e * de, *(None for _ in [*seen, nonpad]), dv)

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
    *_parts(call, logits.shared, values, [], operand),
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
  """A tensor as the kernels take it.

  Attributes:
    tensor: its dimensions in the order of the layout.
    ranks: how many dimensions each axis has.
    layout: of the four axes; see `cpu.windows`.
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

  Where it has no batch or no heads, it gets one entry for each part of the
  mesh. What is read by index has its heads last; it stays as it is, and tiles
  are transposed, if these have all heads.

  Args:
    call: the layer call.
    by_queries: see `Tiling`.
    x: a tensor.
    axes: what its rows and columns are, if it depends on them.
    others: dimensions that belong to its columns, too.
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
  layout = f'b{rows}{columns}h' if heads_last else f'bh{rows}{columns}'

  def in_order(
    batch: list[mtf.Dimension], heads: list[mtf.Dimension]
  ) -> list[list[mtf.Dimension]]:
    inner = [of_axes[rows], [*of_axes[columns], *others]]
    return [batch, *inner, heads] if heads_last else [batch, heads, *inner]

  outer = [d for d in call.batch if d not in others], call.heads
  present = [dims if given & set(dims) else [] for dims in outer]
  filled = [
    found or [mtf.Dimension(d.name, call.parts(d)) for d in dims]
    for found, dims in zip(present, outer)
  ]
  trained = x.dtype.is_floating and not isinstance(
    x.operation, mtf.StopGradient
  )
  x = arrange(x, mtf.Shape([*itertools.chain(*in_order(*present))]))
  groups = in_order(*filled)
  shape = mtf.Shape([*itertools.chain(*groups)])
  if shape.size == x.size:
    x = mtf.reshape(x, shape)
  else:  # the host broadcasts numbers only
    x = mtf.cast(mtf.broadcast(mtf.cast(x, tf.float32), shape), x.dtype)
  return _Operand(x, [*map(len, groups)], layout, trained)


class _Part(NamedTuple):
  """A term of B: a table T, alpha T, or a product Q K^T."""

  operands: Sequence[_Operand]
  is_product: bool = False

  @property
  def trained(self) -> bool:
    return any(x.trained for x in self.operands)

  def value(self, tiles: Tensors) -> tf.Tensor:
    """A tile of the term, from those of its operands."""
    if self.is_product:
      query, key = tiles
      return tf.matmul(query, key, transpose_b=True)
    return functools.reduce(tf.multiply, tiles)

  def gradients(self, db: tf.Tensor, tiles: Tensors) -> MaybeTensors:
    """Those of the operands."""
    if not self.trained:
      return [None] * len(tiles)
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
) -> tuple[list[_Part], list[_Part]]:
  """The parts of B that all examples share, and those of each example.

  Together they have all dimensions of B but the batch; its heads only if V has
  none.
  """
  dims = {*call.length, call.memory_length}
  if not set(call.heads) & set(values.shape.dims):
    dims.update(call.heads)
  if not dims <= set().union(*map(dims_of, terms)):
    shape = mtf.Shape([d for d in call.local if d in dims])
    terms = [*terms, mtf.stop_gradient(mtf.zeros(values.mesh, shape))]

  def part(term: Term) -> _Part:
    if isinstance(term, InnerProduct):
      query = operand(term.query, 'q.', [term.k])
      return _Part([query, operand(term.key, 'k.', [term.k])], is_product=True)
    if isinstance(term, Scaled):
      return _Part([operand(term.table, 'qk'), operand(term.alpha, '..')])
    return _Part([operand(term, 'qk')])

  return (
    [part(x) for x in terms if not dims_of(x) & set(batch)],
    [part(x) for x in terms if dims_of(x) & set(batch)],
  )


class _Kernel(NamedTuple):
  """What is done with a tile.

  Attributes:
    shared: the parts of B that are summed once for all examples.
    local: those of each example.
    others: further operands, V last.
    masks: what is seen.
    forward: from B and the others to Y, all of them a tile's.
    backward: from the same, Y and dY to the gradients of B and the others,
      still to be summed over the axes that their tiles lack.
    by_queries: see `Tiling`.
  """

  shared: Sequence[_Part]
  local: Sequence[_Part]
  others: Sequence[_Operand]
  masks: Sequence[_Operand]
  forward: Callable[..., tf.Tensor]
  backward: Callable[..., MaybeTensors]
  by_queries: bool = False

  @property
  def inputs(self) -> list[_Operand]:
    """All operands but the masks."""
    parts = [*self.shared, *self.local]
    return [*(x for part in parts for x in part.operands), *self.others]

  @property
  def operands(self) -> list[_Operand]:
    """All operands."""
    return [*self.inputs, *self.masks]

  def grouped(self, xs: Sequence[_T]) -> list[Sequence[_T]]:
    """What belongs to the inputs, by shared parts, local parts and others."""
    shared = sum(len(part.operands) for part in self.shared)
    local = sum(len(part.operands) for part in self.local)
    return [xs[:shared], xs[shared : shared + local], xs[shared + local :]]


class _Tiled(mtf.SlicewiseOperation):
  """A function of slices, which it cuts into tiles if they are on CPUs."""

  _tf_fn: Any

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""
    single = not on_cpu(lowering.mesh_impl(self))
    self._tf_fn = functools.partial(self._tf_fn, single=single)
    super().lower(lowering)


def _by_tiles(
  call: LayerCall,
  kernel: _Kernel,
  batch: Sequence[mtf.Dimension],
  columns: Sequence[mtf.Dimension],
) -> mtf.Tensor:
  """Y, [batch..., length, heads, d_kv].

  Args:
    call: the layer call.
    kernel: makes it, [batch..., heads, length, columns...].
    batch: the batch dimensions of B.
    columns: of Y in the kernel.
  """
  groups = batch, call.heads, call.length, columns
  ranks, dims = [*map(len, groups)], [*itertools.chain(*groups)]
  inputs = [x.tensor for x in kernel.operands]
  trained = [x.tensor for x in kernel.operands if x.trained]
  used = {*dims, *(d for x in inputs for d in x.shape.dims)}
  # What is whole may be on an axis of a mesh that has one device.
  whole = [d for d in used if not call.splits(d)]
  splittable = [*call.heads, *call.batch, *whole]

  def forward(*slices: tf.Tensor, single: bool) -> tf.Tensor:
    y = _OnDevice(kernel, slices, single).forward()
    return tf.reshape(y, [d.size // call.parts(d) for d in dims])

  def backward(*slices: tf.Tensor, single: bool) -> Any:
    *inputs, y, dy = slices
    given = _flat(y, ranks), _flat(dy, ranks)
    totals = _OnDevice(kernel, inputs, single).backward(*given)
    found = [
      tf.reshape(total, x.shape)
      for total, x in zip(totals, inputs)
      if total is not None
    ]
    return tuple(found) if len(found) > 1 else found[0]

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
    return [next(found) if x.trained else None for x in kernel.operands]

  operation = _Tiled(
    forward, inputs, [mtf.Shape(dims)], [tf.float32], splittable, gradient
  )
  return mtf.transpose(
    operation.outputs[0],
    mtf.Shape([*call.batch, *call.length, *call.heads, call.kv_dim]),
  )


class _OnDevice:
  """A kernel, and the slices of its operands that a device has."""

  def __init__(self, kernel: _Kernel, slices: Tensors, single: bool) -> None:
    operands = kernel.operands
    xs = [_flat(x, o.ranks) for x, o in zip(slices, operands)]
    self._sizes = {'.': 1}
    for x, o in zip(xs, operands):
      for axis, n in zip(o.layout, x.shape.as_list()):
        self._sizes[axis] = max(n, self._sizes.get(axis, 1))
    shape = [self._sizes[axis] for axis in 'bhqk']
    self._kernel = kernel
    self._tiling = Tiling(shape, kernel.by_queries, single)
    pieces = [Pieces(self._tiling, x, o.layout) for x, o in zip(xs, operands)]
    masks = pieces[len(kernel.inputs) :]
    self._seen = self._tiling.windows([] if single else masks)
    self._pieces = pieces[: len(kernel.inputs)]

  def forward(self) -> tf.Tensor:
    """Y, [batch, heads, length, columns]."""
    *_, columns = self._pieces[-1].piece
    shape = [self._sizes[axis] for axis in 'bhq']
    total = Sum(Cut(self._tiling, [*shape, columns], 'bhq.'))
    last: list[tf.Tensor] = []
    for slab in self._tiling.slabs:
      with tf.control_dependencies(last):
        _, shared = self._shared(slab[0])
      for tile in slab:
        with tf.control_dependencies(last):
          b, _, others = self._tile(tile, shared)
          y = self._kernel.forward(b, *others)
          last = [total.add(y, tile, self._seen)]
    return total.total()

  def backward(self, y: tf.Tensor, dy: tf.Tensor) -> list[Optional[tf.Tensor]]:
    """The gradient of each operand that is trained."""
    kernel = self._kernel
    results = [Pieces(self._tiling, x, 'bhq.') for x in (y, dy)]
    sums = [
      Sum(pieces, x.tensor.dtype) if x.trained else None
      for x, pieces in zip(kernel.inputs, self._pieces)
    ]
    of_shared, of_local, of_others = kernel.grouped(sums)
    b_shape = [1, *(self._sizes[axis] for axis in 'hqk')]
    cut_of_b = Cut(self._tiling, b_shape, 'bhqk')
    last: list[tf.Tensor] = []
    for slab in self._tiling.slabs:
      with tf.control_dependencies(last):
        given, shared = self._shared(slab[0])
      slab_db: Optional[tf.Tensor] = None
      for tile in slab:
        with tf.control_dependencies(last):
          b, local, others = self._tile(tile, shared)
          others += [x.take(tile, self._seen) for x in results]
          db, *found = kernel.backward(b, *others)
          found[:0] = _gradients(kernel.local, db, local)
          last = _add([*of_local, *of_others], found, tile, self._seen)
          if any(part.trained for part in kernel.shared):
            db = cut_of_b.put(db, tile, self._seen)
            slab_db = db if slab_db is None else slab_db + db
            last.append(slab_db)
      if slab_db is not None:
        with tf.control_dependencies(last):
          found = _gradients(kernel.shared, slab_db, given)
          last = _add(of_shared, found, slab[0], self._tiling.whole)
    return [None if total is None else total.total() for total in sums]

  def _shared(self, tile: Tile) -> tuple[Tensors, Optional[tf.Tensor]]:
    """The operands of the shared parts of a slab, and the sum of these."""
    pieces, _, _ = self._kernel.grouped(self._pieces)
    given = [x.take(tile, self._tiling.whole) for x in pieces]
    return given, _total(self._kernel.shared, given)

  def _tile(
    self, tile: Tile, shared: Optional[tf.Tensor]
  ) -> tuple[tf.Tensor, Tensors, list[tf.Tensor]]:
    """The window of a tile: B, the operands of local parts, and the others."""
    _, local, others = (
      [x.take(tile, self._seen) for x in group]
      for group in self._kernel.grouped(self._pieces)
    )
    b = _total(self._kernel.local, local)
    if shared is not None:
      sizes = zip('qk', shared.shape[2:])
      layout = 'bh' + ''.join(axis if n > 1 else '.' for axis, n in sizes)
      shared = self._seen.view(tile.window, shared, layout)
      b = shared if b is None else b + shared
    return b, local, others


def _total(parts: Sequence[_Part], xs: Tensors) -> Optional[tf.Tensor]:
  """The sum of the parts, from their operands; None if there are none."""
  rest = iter(xs)
  values = [part.value([next(rest) for _ in part.operands]) for part in parts]
  # The small ones first.
  values.sort(key=lambda x: sum(n != 1 for n in x.shape.as_list()))
  return functools.reduce(tf.add, values) if values else None


def _gradients(
  parts: Sequence[_Part], db: tf.Tensor, xs: Tensors
) -> list[Optional[tf.Tensor]]:
  """Those of the operands of the parts."""
  rest = iter(xs)
  found = [
    part.gradients(db, [next(rest) for _ in part.operands]) for part in parts
  ]
  return [*itertools.chain(*found)]


def _add(
  sums: Sequence[Optional[Sum]],
  found: MaybeTensors,
  tile: Tile,
  windows: Windows,
) -> list[tf.Tensor]:
  """Adds to each sum what was found for it."""
  return [of.add(x, tile, windows) for of, x in zip(sums, found) if of]


def _flat(x: tf.Tensor, ranks: Sequence[int]) -> tf.Tensor:
  """Merges dimensions: as many as ranks says for each one of the result."""
  sizes = iter(x.shape.as_list())
  return tf.reshape(x, [math.prod(itertools.islice(sizes, n)) for n in ranks])
