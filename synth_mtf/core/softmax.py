"""The softmax over keys, in one operation or split into its parts."""

from collections.abc import Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from tensorflow.compiler.tf2xla.python import xla

from synth_mtf.core.dimensions import arrange, is_tpu

# exp(-75) and 2^19 exp(75) are both normal float32 numbers.
_MAX_EXPONENT = 75.0


def softmax(b: mtf.Tensor, over: mtf.Dimension, dtype: tf.DType) -> mtf.Tensor:
  """Softmax, as one operation, over the last dimension.

  The mesh must not split this dimension, `over`.
  """
  rows = [d for d in b.shape.dims if d != over]
  if is_tpu(b.mesh):
    return _softmax_on_tpu(b, rows, dtype)
  w = mtf.slicewise(tf.nn.softmax, [b], splittable_dims=rows)
  return mtf.cast(w, dtype)


def _softmax_on_tpu(
  b: mtf.Tensor, rows: Sequence[mtf.Dimension], dtype: tf.DType
) -> mtf.Tensor:
  """Keeps only W, rounded to `dtype`, for the gradient.

      W = softmax(B)     dB = W (dW - sum_m dW W / sum_m W)

  The sum of the rounded weights is not exactly 1. A barrier keeps XLA from
  storing W before rounding.
  """

  def forward(b: tf.Tensor) -> tf.Tensor:
    w = tf.nn.softmax(b)
    if dtype == b.dtype:
      return w
    return xla.optimization_barrier(tf.cast(w, dtype))[0]

  def backward(w: tf.Tensor, dw: tf.Tensor) -> tf.Tensor:
    w = tf.cast(w, tf.float32)
    dw = tf.cast(dw, tf.float32)
    total = tf.reduce_sum(w, axis=-1, keepdims=True)
    db = w * (dw - tf.reduce_sum(dw * w, axis=-1, keepdims=True) / total)
    return tf.cast(db, b.dtype)

  def gradient(op: mtf.Operation, dw: mtf.Tensor) -> list[mtf.Tensor]:
    db = mtf.slicewise(
      backward,
      [op.outputs[0], dw],
      output_dtype=b.dtype,
      splittable_dims=rows,
    )
    return [db]

  return mtf.slicewise(
    forward,
    [b],
    output_dtype=dtype,
    splittable_dims=rows,
    grad_function=gradient,
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
  as 75 from it, so the largest ones may tie.

  On a TPU, each term has its own center, and c is the sum of these centers (150
  then limits the sum of the terms' spans). Only E then reads B itself, so XLA
  fuses the two instead of keeping B for each layer.

  Args:
    terms: tensors over subsets of `shape`.
    shape: the dimensions of E; rows run along the last one.
    visible: bool over a subset of `shape`; None hides nothing.

  Returns:
    E, and c, which lacks the last dimension. c has no gradient because it
    cancels in the quotient of two sums over E.
  """
  b = arrange(mtf.add_n(list(terms)), shape)
  if is_tpu(b.mesh):
    centered = [arrange(term, shape) for term in terms]
  else:
    centered = [b]
  mask = [] if visible is None else [visible]
  rows = shape.dims[:-1]
  center = mtf.add_n([_center(x, mask, rows) for x in centered])

  def gradient(op: mtf.Operation, de: mtf.Tensor) -> list[mtf.Tensor | None]:
    e = op.outputs[0]
    return [de * e, None, *(None for _ in mask)]

  e = mtf.slicewise(
    exp_from,
    [b, center, *mask],
    splittable_dims=rows,
    grad_function=gradient,
  )
  return e, center


def _center(
  x: mtf.Tensor, mask: Sequence[mtf.Tensor], rows: Sequence[mtf.Dimension]
) -> mtf.Tensor:
  # Not `mtf.slicewise`, which ignores an empty output shape.
  operation = mtf.SlicewiseOperation(
    row_center,
    [x, *mask],
    output_shapes=[mtf.Shape(rows)],
    output_dtypes=[x.dtype],
    splittable_dims=rows,
    grad_function=0,
  )
  return operation.outputs[0]


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

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> Sequence[mtf.Tensor]:
    x, total = op.inputs
    return mtf.slicewise(
      backward,
      [total, op.outputs[0], dy],
      output_shape=[x.shape, total.shape],
      output_dtype=[x.dtype, total.dtype],
      splittable_dims=rows,
    )

  return mtf.slicewise(
    divide_rows,
    [x, total],
    splittable_dims=rows,
    grad_function=gradient,
  )


def divide_rows(x: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
  """Divides [..., d_kv] by [...]; division by 0 gives 0."""
  total = tf.expand_dims(tf.where_v2(total > 0, total, float('inf')), -1)
  quotient = tf.cast(x, total.dtype) / total
  return tf.cast(quotient, x.dtype)
