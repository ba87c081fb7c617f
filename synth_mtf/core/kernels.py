"""What is computed below Mesh-TensorFlow's own operations, a slice at a time.

Each kernel works on the slices that the devices of a mesh hold, says which
dimensions the mesh may split, and has its own gradient. Where a TPU is better
served in another way than a CPU, the kernel knows, and its callers do not:

  linked           a tensor whose gradient by another one is 0
  made_again       tensors whose gradient keeps nothing of how they are made
  put              one token into a memory
  gather           rows of a table by index
  sum_by_index     its gradient
  gather_cells     cells of a table by two indices
  outer_product    Y_ij = A_i B_j
  centered_exp     E = exp(B - c), 0 where hidden
  product          an einsum, of a single row too
  shared_product   W V, where all examples share W
  divide           Y = X / T
  softmax          W = softmax(B)
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from tensorflow.compiler.tf2xla.python import xla

from synth_mtf.core.dimensions import arrange, is_tpu, put_first

# exp(-75) and 2^20 exp(75) are both normal float32 numbers.
_MAX_EXPONENT = 75.0


def linked(y: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
  """y, with a gradient by x, which is 0.

  The host recomputes a layer only if all that it is given has a gradient.
  """
  return mtf.slicewise(
    lambda y, x: y,
    [y, x],
    output_shape=y.shape,
    output_dtype=y.dtype,
    splittable_dims=[*{*y.shape.dims, *x.shape.dims}],
    grad_function=lambda op, dy: [dy, mtf.zeros_like(op.inputs[1])],
  )


def made_again(
  make: Callable[[], tuple[mtf.Tensor, ...]], given: Sequence[mtf.Tensor]
) -> tuple[mtf.Tensor, ...]:
  """What `make` returns; on a TPU, its gradient makes it once more.

  In between, none of the tensors on the way from `given` to the result is kept.
  The host's `recompute_grad` does it by adding a sum over all devices, times
  1e-30, to what is given; here it is a barrier.

  Args:
    make: makes tensors out of those given, and of others, which are kept.
    given: float tensors, at least one for each large one on the way.
  """
  if not is_tpu(given[0].mesh):
    return make()

  def gradient(
    explicit_inputs: list[mtf.Tensor],
    all_inputs: list[mtf.Tensor],
    forward_operations: list[mtf.Operation],
    outputs: list[mtf.Tensor],
    output_grads: list[Optional[mtf.Tensor]],
  ) -> list[Optional[mtf.Tensor]]:
    first = next(dy for dy in output_grads if dy is not None)
    late = {x: _not_before(first, x) for x in explicit_inputs}
    operations, mapping = first.graph.clone_operations(forward_operations, late)
    return mtf.gradients(
      [mapping[y] for y in outputs],
      [late.get(x, x) for x in all_inputs],
      output_grads,
      operations,
    )

  return mtf.custom_gradient(lambda *_: make(), gradient, list(given))


def put(
  new: mtf.Tensor,
  memory: mtf.Tensor,
  position: mtf.Tensor,
  memory_length: mtf.Dimension,
) -> mtf.Tensor:
  """`memory` with `new` at a position of its length.

  Off a TPU the one token is written, and the memory is not gone through; where
  the mesh splits its length, and on a TPU, all of it is compared and chosen.

  Args:
    new: [batch..., ...], what is put in.
    memory: [batch..., ...] and memory_length anywhere after the batch.
    position: int32 over any of batch...; not negative. One that is past the end
      is for an example that is done: what it remembers is of no use.
    memory_length: the dimension that `new` lacks.

  Returns:
    A tensor of the shape of memory.
  """
  dims = memory.shape.dims
  axis = dims.index(memory_length)
  of_position = [d in position.shape.dims for d in dims[:axis]]
  leading = mtf.Shape([*itertools.compress(dims, of_position)])

  def put_slice(
    memory: tf.Tensor, new: tf.Tensor, position: tf.Tensor, columns: tf.Tensor
  ) -> tf.Tensor:
    sizes = iter(position.shape)
    position = tf.reshape(
      position, [next(sizes) if x else 1 for x in of_position]
    )
    if is_tpu(mesh) or memory.shape[axis] != memory_length.size:
      here = tf.equal(columns, position[..., tf.newaxis])
      here = tf.reshape(here, [*here.shape, *[1] * (len(dims) - axis - 1)])
      return tf.where_v2(here, tf.expand_dims(new, axis), memory)
    return _write(new, memory, position)

  mesh = memory.mesh
  columns = mtf.range(mesh, memory_length, tf.int32)
  return mtf.slicewise(
    put_slice,
    [memory, new, mtf.transpose(position, leading), columns],
    splittable_dims=dims,
  )


def _write(new: tf.Tensor, memory: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
  """Writes [rows..., ...] into [rows..., length, ...], at a position of each.

  Args:
    new: what is written.
    memory: what is there.
    position: [rows...], with size 1 where it is the same for all.
  """
  axis = position.shape.rank
  outer, inner = memory.shape[:axis], memory.shape[axis + 1 :]
  length = memory.shape[axis]
  rows = outer.num_elements()
  first = tf.reshape(tf.range(rows) * length, outer)
  written = tf.tensor_scatter_nd_update(
    tf.reshape(memory, [rows * length, *inner]),
    tf.reshape(first + tf.minimum(position, length - 1), [rows, 1]),
    tf.reshape(new, [rows, *inner]),
  )
  return tf.reshape(written, memory.shape)


def gather(table: mtf.Tensor, indices: mtf.Tensor, axis: str) -> mtf.Tensor:
  """`table[..., indices, ...]` along the axis of that name.

  A TPU mesh multiplies with a one-hot matrix, as the host does; elsewhere the
  entries are copied, which is far less work for a processor without a matrix
  unit to spare. The axis gets a name of its own, which no layout splits.

  Args:
    table: a tensor with a dimension named `axis`.
    indices: int32 of any shape, all of them on the axis; dimensions that the
      table has too are aligned.
    axis: a dimension name.

  Returns:
    A tensor with the dimensions of `indices` in place of `axis`.
  """
  position_dim = mtf.Dimension(
    'position', table.shape.get_dim_by_name(axis).size
  )
  table = mtf.rename_dimension(table, axis, position_dim.name)
  if is_tpu(table.mesh):
    return mtf.gather(table, indices, position_dim)
  common = [d for d in indices.shape.dims if d in table.shape.dims]
  table = put_first(common, table)
  indices = put_first(common, indices)
  at = table.shape.dims.index(position_dim)
  new = indices.shape.dims[len(common) :]
  output_shape = mtf.Shape(
    table.shape.dims[:at] + new + table.shape.dims[at + 1 :]
  )

  def copy(table: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    return tf.gather(table, indices, axis=at, batch_dims=len(common))

  return mtf.slicewise(
    copy,
    [table, indices],
    output_shape=output_shape,
    splittable_dims=[*output_shape.dims],
    grad_function=lambda op, dy: [
      sum_by_index(dy, op.inputs[1], op.inputs[0].shape, position_dim),
      None,
    ],
  )


def sum_by_index(
  dy: mtf.Tensor, indices: mtf.Tensor, shape: mtf.Shape, axis: mtf.Dimension
) -> mtf.Tensor:
  """The gradient of `gather`: entries that share a place are summed.

      dT[..., i, ...] = sum of the dY whose index is i

  Args:
    dy: the dimensions of `indices`, and those of `shape` without `axis`.
    indices: int32 of any shape; what is not on the axis is left out.
    shape: that of the table.
    axis: its dimension, no part of which is on another device.

  Returns:
    dT, of that shape.
  """
  common = [d for d in indices.shape.dims if d in shape.dims]
  entries = [d for d in indices.shape.dims if d not in common]
  kept = [d for d in shape.dims if d not in [*common, axis]]
  dy = mtf.transpose(dy, mtf.Shape(common + entries + kept))
  total = _SumByIndex(dy, put_first(common, indices), axis, len(common))
  return mtf.transpose(total.outputs[0], shape)


class _SumByIndex(mtf.Operation):
  """See `sum_by_index`; the mesh may split all dimensions but the axis.

  Each device sums its own entries into a table of its own, and the mesh adds
  the tables, as it does for a product.
  """

  def __init__(
    self, dy: mtf.Tensor, indices: mtf.Tensor, axis: mtf.Dimension, common: int
  ) -> None:
    """Creates the operation.

    Args:
      dy: [common..., entries..., kept...].
      indices: int32 [common..., entries...].
      axis: what is indexed.
      common: how many dimensions are common to the table and the indices.
    """
    super().__init__([dy, indices], mesh=dy.mesh, name='sum_by_index')
    self._common = common
    of_indices, of_dy = indices.shape.dims, dy.shape.dims
    self._entries = of_indices[common:]
    shape = [*of_indices[:common], axis, *of_dy[len(of_indices) :]]
    self._outputs = [mtf.Tensor(self, mtf.Shape(shape), dy.dtype)]

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""
    mesh_impl = lowering.mesh_impl(self)
    size = self.outputs[0].shape.dims[self._common].size
    tables = mesh_impl.slicewise(
      functools.partial(_segment_sum, self._common, size),
      *(lowering.tensors[x] for x in self.inputs),
    )
    axes = map(mesh_impl.tensor_dimension_to_mesh_axis, self._entries)
    split = [axis for axis in axes if axis is not None]
    if split:
      tables = mtf.LazyAllreduceSum(mesh_impl, tables, split)
    lowering.set_tensor_lowering(self.outputs[0], tables)


def _segment_sum(
  common: int, size: int, dy: tf.Tensor, indices: tf.Tensor
) -> tf.Tensor:
  """Sums [common..., entries..., kept...] by [common..., entries...]."""
  leading, kept = indices.shape[:common], dy.shape[indices.shape.rank :]
  tables = leading.num_elements()
  first = tf.range(tables)[:, tf.newaxis] * size
  indices = tf.reshape(indices, [tables, -1])
  known = tf.logical_and(indices >= 0, indices < size)
  total = tf.math.unsorted_segment_sum(
    tf.reshape(dy, [-1, *kept]),
    tf.reshape(tf.where_v2(known, indices + first, -1), [-1]),
    tables * size,
  )  # which leaves -1 out
  return tf.reshape(total, [*leading, size, *kept])


def gather_cells(
  table: mtf.Tensor, rows: mtf.Tensor, columns: mtf.Tensor
) -> mtf.Tensor:
  """`table[..., rows, columns]`, one cell for each pair.

  Off a TPU all heads of a cell are read at once. On a TPU, where a gather is a
  product, two products over the single axes are less work than one over cells.

  Args:
    table: [..., length, memory_length].
    rows: int32 [batch..., length], on the `length` axis.
    columns: int32 [batch..., memory_length], on the `memory_length` axis.

  Returns:
    A tensor over [batch..., ..., length, memory_length], in any order.
  """
  if is_tpu(table.mesh):
    return gather(gather(table, rows, 'length'), columns, 'memory_length')
  axes = [table.shape.get_dim_by_name(n) for n in ('length', 'memory_length')]
  cell_dim = mtf.Dimension('cell', mtf.Shape(axes).size)
  cells = mtf.replace_dimensions(put_first(axes, table), axes, cell_dim)
  return gather(cells, rows * axes[1].size + columns, cell_dim.name)


def outer_product(a: mtf.Tensor, b: mtf.Tensor) -> mtf.Tensor:
  """Y_ij = A_i B_j, for two vectors of each row.

      dA_i = sum_j dY_ij B_j     dB_j = sum_i dY_ij A_i

  XLA would keep both vectors for the gradient as it broadcasts them for Y, each
  as large as Y: on a TPU the gradient reads them from behind a barrier.

  Args:
    a: [rows..., a].
    b: [rows..., b].

  Returns:
    Y, [rows..., a, b].
  """
  *rows, b_dim = b.shape.dims

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor]:
    a, b = op.inputs
    return [
      mtf.einsum([dy, _not_before(dy, b)], a.shape),
      mtf.einsum([dy, _not_before(dy, a)], b.shape),
    ]

  return mtf.slicewise(
    lambda a, b: a[..., tf.newaxis] * b[..., tf.newaxis, :],
    [a, b],
    output_shape=mtf.Shape([*a.shape.dims, b_dim]),
    splittable_dims=rows,
    grad_function=gradient,
  )


def _not_before(y: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
  """x, which a TPU does not get before y, and not as anything made of x."""
  if not is_tpu(x.mesh):
    return x
  return mtf.slicewise(
    lambda x, y: xla.optimization_barrier(x, y)[0],
    [x, y],
    splittable_dims=[*{*x.shape.dims, *y.shape.dims}],
  )


def centered_exp(
  terms: Sequence[mtf.Tensor],
  shape: mtf.Shape,
  visible: Optional[mtf.Tensor],
) -> tuple[mtf.Tensor, mtf.Tensor]:
  """E = exp(B - c), 0 where hidden, for B the sum of the terms.

  The center c of a row is the middle of its visible logits. Whatever padding
  an example has, E then neither overflows nor vanishes, as long as the logits
  of a row lie within 150 of each other; larger distances count as 150. On a TPU
  each term of B has its own center, and c is their sum (the 150 is then for the
  sum of the terms' spreads): B itself is then used for E alone, and XLA makes
  it there instead of keeping it for each layer.

  Args:
    terms: subsets of `shape`.
    shape: the dimensions of E; a row is its last one.
    visible: bool over a subset of them, or None where nothing is hidden.

  Returns:
    E, and c without the last dimension. No gradient runs through c, which
    cancels in the quotient of two sums over E.
  """
  b = arrange(mtf.add_n(list(terms)), shape)
  parts = [arrange(t, shape) for t in terms] if is_tpu(b.mesh) else [b]
  mask = [] if visible is None else [visible]
  rows = shape.dims[:-1]
  center = mtf.add_n(
    [
      mtf.slicewise(
        row_center,
        [part, *mask],
        output_shape=mtf.Shape(rows),
        splittable_dims=rows,
        grad_function=0,
      )
      for part in parts
    ]
  )
  e = mtf.slicewise(
    exp_from,
    [b, center, *mask],
    splittable_dims=rows,
    grad_function=lambda op, de: (
      [de * op.outputs[0]] + [None] * (len(op.inputs) - 1)
    ),
  )
  return e, center


def row_center(b: tf.Tensor, visible: Optional[tf.Tensor] = None) -> tf.Tensor:
  """The middle between the least and the largest visible logit of each row."""
  low = high = b
  if visible is not None:
    low = tf.where_v2(visible, b, b.dtype.max)
    high = tf.where_v2(visible, b, b.dtype.min)
  return (tf.reduce_min(low, axis=-1) + tf.reduce_max(high, axis=-1)) / 2


def exp_from(
  b: tf.Tensor, center: tf.Tensor, visible: Optional[tf.Tensor] = None
) -> tf.Tensor:
  """exp(b - center), 0 where hidden."""
  e = tf.exp(
    tf.clip_by_value(
      b - tf.expand_dims(center, -1), -_MAX_EXPONENT, _MAX_EXPONENT
    )
  )
  return e if visible is None else tf.where_v2(visible, e, 0.0)


def product(x: mtf.Tensor, y: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """The einsum of x and y.

  Where y has all dimensions, as keys have when there is one query, the host
  multiplies all of it and sums. Off a TPU, x becomes a matrix of one row there.

  Args:
    x: [..., k].
    y: [..., k, ...], in any order.
    shape: [..., columns].
  """
  if is_tpu(x.mesh) or not {*x.shape.dims, *shape.dims} <= {*y.shape.dims}:
    return mtf.einsum([x, y], shape)

  def one_row(shape: mtf.Shape) -> mtf.Shape:
    *rows, columns = shape.dims
    return mtf.Shape([*rows, mtf.Dimension('single', 1), columns])

  rows = mtf.reshape(x, one_row(x.shape))
  return mtf.reshape(mtf.einsum([rows, y], one_row(shape)), shape)


def shared_product(
  weights: mtf.Tensor,
  values: mtf.Tensor,
  batch: Sequence[mtf.Dimension],
  length: Sequence[mtf.Dimension],
  heads: Sequence[mtf.Dimension],
  train: bool,
) -> mtf.Tensor:
  """W V, where all examples share W.

  Computed as one product, the result has its heads outside the batch on a TPU,
  and XLA keeps a second copy of it for the output projection, which needs the
  batch outside. For training there is therefore one product for each example,
  with a broadcast of W that XLA makes part of the product.

  Args:
    weights: W, [heads, length, memory_length].
    values: V, [batch..., memory_length, heads, d_kv], or in another order that
      ends with d_kv.
    batch: the batch dimensions.
    length: [length], or [] for a single query.
    heads: the heads' dimensions.
    train: whether there will be a gradient.

  Returns:
    [batch..., length, heads, d_kv].
  """
  output_shape = mtf.Shape([*batch, *length, *heads, values.shape.dims[-1]])
  weights = mtf.cast(weights, values.dtype)
  if not (is_tpu(weights.mesh) and train):
    return product(weights, values, output_shape)
  memory_length, inner = weights.shape.dims[-1], [*heads, values.shape.dims[-1]]
  values = arrange(values, mtf.Shape([*batch, memory_length, *inner]))
  missing = [i for i, d in enumerate(batch) if d not in weights.shape.dims]

  def multiply_each(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    examples = values.shape[: len(batch)]
    for axis in missing:
      weights = tf.expand_dims(weights, axis)
    weights = tf.broadcast_to(weights, examples + weights.shape[len(batch) :])
    h = 'h' if heads else ''
    return tf.einsum(f'...{h}ij,...j{h}d->...i{h}d', weights, values)

  return mtf.slicewise(
    multiply_each,
    [weights, values],
    output_shape=output_shape,
    splittable_dims=[*batch, *length, *heads],
    grad_function=lambda op, dy: [
      mtf.einsum([dy, op.inputs[1]], op.inputs[0].shape),
      mtf.einsum([op.inputs[0], dy], op.inputs[1].shape),
    ],
  )


def divide(x: mtf.Tensor, total: mtf.Tensor) -> mtf.Tensor:
  """Y = X / T for [..., d_kv] and [...]; 0 where T is 0.

      dX = dY / T     dT = -sum_d dX Y

  so that Y, which is needed anyway, is what is kept for the gradient.
  """
  return mtf.slicewise(
    divide_rows,
    [x, total],
    splittable_dims=total.shape.dims,
    grad_function=_divide_gradient,
  )


def _divide_gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor]:
  total = op.inputs[1]
  rows = total.shape.dims
  dx = mtf.slicewise(divide_rows, [dy, total], splittable_dims=rows)
  dtotal = mtf.slicewise(
    lambda dx, y: (
      -tf.reduce_sum(
        tf.cast(dx, total.dtype) * tf.cast(y, total.dtype), axis=-1
      )
    ),
    [dx, op.outputs[0]],
    output_shape=total.shape,
    output_dtype=total.dtype,
    splittable_dims=rows,
  )
  return [dx, dtotal]


def divide_rows(x: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
  """Divides [..., d_kv] by [...]; the quotient by 0 is 0."""
  total = tf.expand_dims(tf.where_v2(total > 0, total, float('inf')), -1)
  return tf.cast(tf.cast(x, total.dtype) / total, x.dtype)


def softmax(b: mtf.Tensor, over: mtf.Dimension, dtype: tf.DType) -> mtf.Tensor:
  """Softmax over a dimension that the mesh does not split, as one operation.

      W = softmax(B)     dB = W (dW - sum_m dW W / sum_m W)

  On a TPU the gradient keeps W alone, rounded to its type, and divides by what
  rounded weights sum to. XLA would rather keep W as it was before: a barrier
  does not let it look behind the rounding.

  Args:
    b: logits, of which `over` is the last dimension.
    over: what the weights sum to 1 over.
    dtype: of the weights.
  """
  rows = [d for d in b.shape.dims if d != over]
  if not is_tpu(b.mesh):
    w = mtf.slicewise(tf.nn.softmax, [b], splittable_dims=rows)
    return mtf.cast(w, dtype)

  def forward(b: tf.Tensor) -> tf.Tensor:
    w = tf.nn.softmax(b)
    if dtype == b.dtype:
      return w
    return xla.optimization_barrier(tf.cast(w, dtype))[0]

  def backward(w: tf.Tensor, dw: tf.Tensor) -> tf.Tensor:
    w, dw = tf.cast(w, tf.float32), tf.cast(dw, tf.float32)
    total = tf.reduce_sum(w, axis=-1, keepdims=True)
    db = w * (dw - tf.reduce_sum(dw * w, axis=-1, keepdims=True) / total)
    return tf.cast(db, b.dtype)

  return mtf.slicewise(
    forward,
    [b],
    output_dtype=dtype,
    splittable_dims=rows,
    grad_function=lambda op, dw: [
      mtf.slicewise(
        backward,
        [op.outputs[0], dw],
        output_dtype=b.dtype,
        splittable_dims=rows,
      )
    ],
  )
