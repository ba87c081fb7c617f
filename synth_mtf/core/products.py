"""Products that the host or XLA would compute less efficiently."""

from collections.abc import Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.dimensions import arrange, fuses_products, is_tpu
from synth_mtf.core.gradients import not_before


def product(x: mtf.Tensor, y: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """Computes the einsum of x [..., k] and y [..., k, ...] to [..., columns].

  If y has all dimensions, as the keys of a single query do, the host multiplies
  elementwise and sums. Except on TPUs, x then becomes a one-row matrix.
  """
  is_elementwise = {*x.shape.dims, *shape.dims} <= {*y.shape.dims}
  if is_elementwise and not is_tpu(x.mesh):
    return _product_of_one_row(x, y, shape)
  return mtf.einsum([x, y], shape)


def _product_of_one_row(
  x: mtf.Tensor, y: mtf.Tensor, shape: mtf.Shape
) -> mtf.Tensor:
  single = mtf.Dimension('single', 1)
  *rows, k = x.shape.dims
  x = mtf.reshape(x, mtf.Shape([*rows, single, k]))
  *rows, columns = shape.dims
  z = mtf.einsum([x, y], mtf.Shape([*rows, single, columns]))
  return mtf.reshape(z, shape)


def shared_product(
  weights: mtf.Tensor,
  values: mtf.Tensor,
  batch: Sequence[mtf.Dimension],
  length: Sequence[mtf.Dimension],
  heads: Sequence[mtf.Dimension],
  train: bool,
) -> mtf.Tensor:
  """Computes W V, where all examples share W.

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
  weights = mtf.cast(weights, values.dtype)
  if train and fuses_products(weights.mesh):
    return _shared_product_on_tpu(weights, values, batch, length, heads)
  d_kv = values.shape.dims[-1]
  return product(weights, values, mtf.Shape([*batch, *length, *heads, d_kv]))


def _shared_product_on_tpu(
  weights: mtf.Tensor,
  values: mtf.Tensor,
  batch: Sequence[mtf.Dimension],
  length: Sequence[mtf.Dimension],
  heads: Sequence[mtf.Dimension],
) -> mtf.Tensor:
  """Takes one product per example, with a broadcast of W that XLA fuses.

  The result of a single product would be heads-major, and XLA would keep a
  batch-major copy of it for the output projection.
  """
  memory_length = weights.shape.dims[-1]
  d_kv = values.shape.dims[-1]
  values = arrange(values, mtf.Shape([*batch, memory_length, *heads, d_kv]))
  missing = [i for i, d in enumerate(batch) if d not in weights.shape.dims]
  if heads:
    equation = '...hij,...jhd->...ihd'
  else:
    equation = '...ij,...jd->...id'

  def multiply_each(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    examples = values.shape[: len(batch)]
    for axis in missing:
      weights = tf.expand_dims(weights, axis)
    weights = tf.broadcast_to(weights, examples + weights.shape[len(batch) :])
    return tf.einsum(equation, weights, values)

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor]:
    weights, values = op.inputs
    return [
      mtf.einsum([dy, values], weights.shape),
      mtf.einsum([weights, dy], values.shape),
    ]

  return mtf.slicewise(
    multiply_each,
    [weights, values],
    output_shape=mtf.Shape([*batch, *length, *heads, d_kv]),
    splittable_dims=[*batch, *length, *heads],
    grad_function=gradient,
  )


def outer_product(a: mtf.Tensor, b: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """Computes Y_ij = A_i B_j for the two vectors of each row.

      dA_i = sum_j dY_ij B_j     dB_j = sum_i dY_ij A_i

  On a TPU, XLA would keep both vectors for the gradient, broadcast to the size
  of Y; a barrier in the gradient prevents this.

  Args:
    a: A, [rows..., a]; like B, with its dimensions in the order of `shape`.
    b: B, [rows..., b].
    shape: [rows..., a, b], in any order.
  """
  rows = [d for d in a.shape.dims if d in b.shape.dims]

  def spread(x: tf.Tensor, dims: Sequence[mtf.Dimension]) -> tf.Tensor:
    for axis, dim in enumerate(shape.dims):
      if dim not in dims:
        x = tf.expand_dims(x, axis)
    return x

  def multiply(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return spread(x, a.shape.dims) * spread(y, b.shape.dims)

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor]:
    a, b = op.inputs
    return [
      mtf.einsum([dy, not_before(dy, b)], a.shape),
      mtf.einsum([dy, not_before(dy, a)], b.shape),
    ]

  return mtf.slicewise(
    multiply,
    [a, b],
    output_shape=shape,
    splittable_dims=rows,
    grad_function=gradient,
  )
