"""Custom Mesh-TensorFlow operations, implemented on each device's slices.

Each kernel declares which dimensions the mesh may split, and most define their
own gradients. Kernels select a different implementation on TPUs if needed.
"""

from collections.abc import Callable, Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from tensorflow.compiler.tf2xla.python import xla

from synth_mtf.core.dimensions import (
  arrange,
  is_tpu,
  put_first,
  sum_over_devices,
)

# exp(-75) and 2^19 exp(75) are both normal float32 numbers.
_MAX_EXPONENT = 75.0


def link_gradient(y: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
  """Returns y, with a zero gradient with respect to x.

  The host recomputes a layer only if all of its inputs have gradients.
  """
  return mtf.slicewise(
    lambda y, x: y,
    [y, x],
    output_shape=y.shape,
    output_dtype=y.dtype,
    splittable_dims=[*{*y.shape.dims, *x.shape.dims}],
    grad_function=lambda op, dy: [dy, mtf.zeros_like(op.inputs[1])],
  )


def recompute_in_backward(
  make: Callable[[], tuple[mtf.Tensor, ...]], given: Sequence[mtf.Tensor]
) -> tuple[mtf.Tensor, ...]:
  """Returns `make()`, recomputed in the backward pass on a TPU.

  Intermediate tensors are not kept; `given` needs at least one input of each
  large one. A barrier delays the recomputation, where the host's
  `recompute_grad` adds a sum over all devices, times 1e-30.
  """
  if not is_tpu(given[0].mesh):
    return make()

  def gradient(
    explicit_inputs: Sequence[mtf.Tensor],
    all_inputs: Sequence[mtf.Tensor],
    forward_operations: Sequence[mtf.Operation],
    outputs: Sequence[mtf.Tensor],
    output_grads: Sequence[mtf.Tensor | None],
  ) -> list[mtf.Tensor | None]:
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
  """Writes `new` into `memory` at a position along `memory_length`.

  On a TPU, or if the mesh splits the length, a comparison with the position
  selects the entry; otherwise only that entry is written.

  Args:
    new: [batch..., ...].
    memory: [batch..., ...], with memory_length anywhere after the batch.
    position: nonnegative int32 over any of batch... An example whose position
      is past the end is finished, and its memory is undefined.
    memory_length: the dimension that `new` lacks.
  """
  dims = memory.shape.dims
  axis = dims.index(memory_length)
  given = [d for d in dims[:axis] if d in position.shape.dims]
  leading = [
    d if d in given else mtf.Dimension(f'no_{d.name}', 1) for d in dims[:axis]
  ]
  position = mtf.transpose(position, mtf.Shape(given))

  def put_slice(
    memory: tf.Tensor, new: tf.Tensor, position: tf.Tensor, columns: tf.Tensor
  ) -> tf.Tensor:
    outer, length = memory.shape[:axis], memory.shape[axis]
    inner = memory.shape[axis + 1 :]
    if is_tpu(mesh) or length != memory_length.size:
      here = tf.equal(columns, position[..., tf.newaxis])
      here = tf.reshape(here, [*here.shape, *[1] * len(inner)])
      return tf.where_v2(here, tf.expand_dims(new, axis), memory)
    rows = outer.num_elements()
    first = tf.reshape(tf.range(rows) * length, outer)
    written = tf.tensor_scatter_nd_update(
      tf.reshape(memory, [rows * length, *inner]),
      tf.reshape(first + tf.minimum(position, length - 1), [rows, 1]),
      tf.reshape(new, [rows, *inner]),
    )
    return tf.reshape(written, memory.shape)

  mesh = memory.mesh
  columns = mtf.range(mesh, memory_length, tf.int32)
  return mtf.slicewise(
    put_slice,
    [memory, new, mtf.reshape(position, mtf.Shape(leading)), columns],
    splittable_dims=dims,
  )


def gather(table: mtf.Tensor, indices: mtf.Tensor, axis: str) -> mtf.Tensor:
  """Returns `table[..., indices, ...]` along the named axis.

  A TPU multiplies by a one-hot matrix, as the host does; other devices copy
  entries. Indices are int32 and in range. Their dimensions replace `axis`,
  which the mesh must not split; dimensions shared with the table are aligned.
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
  output_shape = mtf.Shape(
    [
      *table.shape.dims[:at],
      *indices.shape.dims[len(common) :],
      *table.shape.dims[at + 1 :],
    ]
  )

  def copy(table: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    # A sparse read would make TensorFlow copy the whole variable at every later
    # read, for example when the softmax reads an embedding.
    table = tf.convert_to_tensor(table)
    return tf.gather(table, indices, axis=at, batch_dims=len(common))

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor | None]:
    table, indices = op.inputs
    dy = put_first(indices.shape.dims, dy)
    total = _SumByIndex(dy, indices, position_dim, len(common))
    return [mtf.transpose(total.outputs[0], table.shape), None]

  return mtf.slicewise(
    copy,
    [table, indices],
    output_shape=output_shape,
    splittable_dims=[*output_shape.dims],
    grad_function=gradient,
  )


class _SumByIndex(mtf.Operation):
  """The gradient of `gather`, which sums entries with the same index.

      dT[..., i, ...] = sum of the dY whose index is i

  dY is [common..., entries..., kept...], the indices [common..., entries...],
  and dT [common..., axis, kept...]. Each device sums its own entries, and an
  all-reduce adds the results. The mesh may split any dimension but the axis.
  """

  def __init__(
    self, dy: mtf.Tensor, indices: mtf.Tensor, axis: mtf.Dimension, common: int
  ) -> None:
    super().__init__([dy, indices], mesh=dy.mesh, name='sum_by_index')
    dims = indices.shape.dims
    self._common, self._entries = common, dims[common:]
    shape = [*dims[:common], axis, *dy.shape.dims[len(dims) :]]
    self._outputs = [mtf.Tensor(self, mtf.Shape(shape), dy.dtype)]

  def lower(self, lowering: mtf.Lowering) -> None:
    mesh_impl = lowering.mesh_impl(self)
    size = self.outputs[0].shape.dims[self._common].size

    def segment_sum(dy: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
      leading = indices.shape[: self._common]
      kept = dy.shape[indices.shape.rank :]
      tables = leading.num_elements()
      first = tf.range(tables)[:, tf.newaxis] * size
      total = tf.math.unsorted_segment_sum(
        tf.reshape(dy, [-1, *kept]),
        tf.reshape(tf.reshape(indices, [tables, -1]) + first, [-1]),
        tables * size,
      )
      return tf.reshape(total, [*leading, size, *kept])

    tables = mesh_impl.slicewise(
      segment_sum, *(lowering.tensors[x] for x in self.inputs)
    )
    tables = sum_over_devices(mesh_impl, tables, self._entries)
    lowering.set_tensor_lowering(self.outputs[0], tables)


def gather_cells(
  table: mtf.Tensor, rows: mtf.Tensor, columns: mtf.Tensor
) -> mtf.Tensor:
  """Returns `table[..., rows, columns]`, one cell per (row, column) pair.

  On a TPU, a gather is a matrix product, and one product per axis is cheaper
  than one over cells. Other devices read all heads of a cell at once.

  A table [..., length, memory_length] with int32 rows [batch..., length] and
  columns [batch..., memory_length] gives [batch..., ..., length,
  memory_length], in any order.
  """
  if is_tpu(table.mesh):
    return gather(gather(table, rows, 'length'), columns, 'memory_length')
  axes = [table.shape.get_dim_by_name(n) for n in ('length', 'memory_length')]
  cell_dim = mtf.Dimension('cell', mtf.Shape(axes).size)
  cells = mtf.replace_dimensions(put_first(axes, table), axes, cell_dim)
  return gather(cells, rows * axes[1].size + columns, cell_dim.name)


def outer_product(a: mtf.Tensor, b: mtf.Tensor) -> mtf.Tensor:
  """Computes Y_ij = A_i B_j for the two vectors of each row.

      dA_i = sum_j dY_ij B_j     dB_j = sum_i dY_ij A_i

  For A [rows..., a] and B [rows..., b], Y is [rows..., a, b]. XLA would keep
  both vectors for the gradient, broadcast to the size of Y; a barrier in the
  gradient prevents this on TPUs.
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
  """Returns x, on a TPU behind a barrier that waits for y."""
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
  visible: mtf.Tensor | None,
) -> tuple[mtf.Tensor, mtf.Tensor]:
  """Computes E = exp(B - c), 0 where hidden, for B the sum of the terms.

  The center c of a row is the midpoint of its visible logits. E therefore
  neither overflows nor underflows, whatever the padding, if the logits of a row
  span at most 150. In a row that spans more, logits more than 75 from c count
  as 75 from it, so the largest ones may tie. On a TPU each term has its own
  center, and c is the sum of these centers (150 then limits the sum of the
  terms' spans). Only E then reads B itself, so XLA fuses the two instead of
  keeping B for each layer.

  Args:
    terms: tensors over subsets of `shape`.
    shape: the dimensions of E; rows run along the last one.
    visible: bool over a subset of `shape`; None hides nothing.

  Returns:
    E, and c, which lacks the last dimension. c has no gradient because it
    cancels in the quotient of two sums over E.
  """
  b = arrange(mtf.add_n(list(terms)), shape)
  parts = [arrange(t, shape) for t in terms] if is_tpu(b.mesh) else [b]
  mask = [] if visible is None else [visible]
  rows = shape.dims[:-1]
  centers = [
    # `mtf.slicewise` ignores an empty output shape.
    mtf.SlicewiseOperation(
      row_center,
      [part, *mask],
      output_shapes=[mtf.Shape(rows)],
      output_dtypes=[part.dtype],
      splittable_dims=rows,
      grad_function=0,
    ).outputs[0]
    for part in parts
  ]
  center = mtf.add_n(centers)
  e = mtf.slicewise(
    exp_from,
    [b, center, *mask],
    splittable_dims=rows,
    grad_function=lambda op, de: (
      [de * op.outputs[0]] + [None] * (len(op.inputs) - 1)
    ),
  )
  return e, center


def row_center(b: tf.Tensor, visible: tf.Tensor | None = None) -> tf.Tensor:
  """Returns the midpoint of each row's smallest and largest visible logit."""
  low = high = b
  if visible is not None:
    low = tf.where_v2(visible, b, b.dtype.max)
    high = tf.where_v2(visible, b, b.dtype.min)
  return (tf.reduce_min(low, axis=-1) + tf.reduce_max(high, axis=-1)) / 2


def exp_from(
  b: tf.Tensor, center: tf.Tensor, visible: tf.Tensor | None = None
) -> tf.Tensor:
  """Computes exp(b - center), 0 where hidden."""
  distance = b - tf.expand_dims(center, -1)
  e = tf.exp(tf.clip_by_value(distance, -_MAX_EXPONENT, _MAX_EXPONENT))
  return e if visible is None else tf.where_v2(visible, e, 0.0)


def product(x: mtf.Tensor, y: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """Computes the einsum of x [..., k] and y [..., k, ...] to [..., columns].

  If y has all dimensions, as the keys of a single query do, the host multiplies
  elementwise and sums. Except on TPUs, x then becomes a one-row matrix.
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
  """Computes W V, where all examples share W.

  On a TPU, the result of a single product would be heads-major, and XLA would
  keep a batch-major copy of it for the output projection. Training on a TPU
  therefore takes one product per example, with a broadcast of W that XLA fuses.

  Args:
    weights: W, [heads, length, memory_length].
    values: V, [batch..., memory_length, heads, d_kv], or in another order that
      ends with d_kv.
    batch: the batch dimensions.
    length: [length], or [] for a single query.
    heads: the head dimensions.
    train: whether a gradient is needed.

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
  """Computes Y = X / T for X [..., d_kv] and T [...]; 0 where T is 0.

      dX = dY / T     dT = -sum_d dX Y

  The gradient reuses Y, which is kept anyway.
  """
  rows = total.shape.dims

  def backward(
    total: tf.Tensor, y: tf.Tensor, dy: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    dx = divide_rows(dy, total)
    products = tf.cast(dx, total.dtype) * tf.cast(y, total.dtype)
    return dx, -tf.reduce_sum(products, axis=-1)

  return mtf.slicewise(
    divide_rows,
    [x, total],
    splittable_dims=rows,
    grad_function=lambda op, dy: mtf.slicewise(
      backward,
      [op.inputs[1], op.outputs[0], dy],
      output_shape=[x.shape, total.shape],
      output_dtype=[x.dtype, total.dtype],
      splittable_dims=rows,
    ),
  )


def divide_rows(x: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
  """Divides [..., d_kv] by [...]; division by 0 gives 0."""
  total = tf.expand_dims(tf.where_v2(total > 0, total, float('inf')), -1)
  return tf.cast(tf.cast(x, total.dtype) / total, x.dtype)


def softmax(b: mtf.Tensor, over: mtf.Dimension, dtype: tf.DType) -> mtf.Tensor:
  """Softmax, as one operation, over the last dimension.

  The mesh must not split this dimension, `over`.

      W = softmax(B)     dB = W (dW - sum_m dW W / sum_m W)

  On a TPU the gradient keeps only W, rounded to `dtype`, and divides by the sum
  of the rounded weights. A barrier keeps XLA from storing W before rounding.
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
