"""The softmax over keys, in one operation or split into its parts."""

import math
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


def exp_and_sum(
  b: mtf.Tensor, center: mtf.Tensor, over: mtf.Dimension, dtype: tf.DType
) -> tuple[mtf.Tensor, mtf.Tensor]:
  """Computes E = exp(B - c), rounded to `dtype`, and its sums T over keys.

      dB = E (dE + dT)

  dB is rounded to `dtype`, too. It is meant for a TPU: barriers keep XLA from
  storing E and dB before rounding.

  Args:
    b: B, [..., memory_length, ...], or with several neighbouring dimensions
      in place of memory_length; the mesh must not split these.
    center: c, which lacks them and gets no gradient.
    over: memory_length, of E.
    dtype: the type of E.
  """
  rows = center.shape.dims
  keys = [d for d in b.shape.dims if d not in rows]
  axis = b.shape.dims.index(keys[0])
  axes = range(axis, axis + len(keys))

  def stored(x: tf.Tensor) -> tf.Tensor:
    return xla.optimization_barrier(x)[0]

  def joined(x: tf.Tensor) -> tf.Tensor:
    others = x.shape[axis + len(keys) :]
    return tf.reshape(x, [*x.shape[:axis], over.size, *others])

  def forward(b: tf.Tensor, center: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    for key in axes:
      center = tf.expand_dims(center, key)
    e = stored(tf.cast(tf.exp(b - center), dtype))
    return joined(e), tf.reduce_sum(tf.cast(e, b.dtype), axis=axes)

  def backward(e: tf.Tensor, de: tf.Tensor, dtotal: tf.Tensor) -> tf.Tensor:
    de = tf.cast(de, dtotal.dtype) + tf.expand_dims(dtotal, axis)
    db = tf.cast(tf.cast(e, de.dtype) * de, dtype)
    others = db.shape[axis + 1 :]
    db = tf.reshape(db, [*db.shape[:axis], *(d.size for d in keys), *others])
    return tf.cast(stored(db), de.dtype)

  def gradient(
    op: mtf.Operation, de: mtf.Tensor, dtotal: mtf.Tensor
  ) -> list[mtf.Tensor | None]:
    db = mtf.slicewise(
      backward,
      [op.outputs[0], de, dtotal],
      output_shape=b.shape,
      output_dtype=b.dtype,
      splittable_dims=rows,
    )
    return [db, None]

  return mtf.slicewise(
    forward,
    [b, center],
    output_shape=[mtf.Shape([*rows[:axis], over, *rows[axis:]]), center.shape],
    output_dtype=[dtype, b.dtype],
    splittable_dims=rows,
    grad_function=gradient,
  )


def centered_exp(
  terms: Sequence[mtf.Tensor],
  shape: mtf.Shape,
  visible: mtf.Tensor | None,
) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
  """Computes E = exp(B - c), 0 where hidden, for B the sum of the terms.

  The center c of a row is the midpoint of its visible logits, or 75 below the
  largest one if that is more. E therefore never overflows, and logits down to
  150 below the largest one have their exact weight. Lower ones count as 75
  below c. That changes nothing unless a row's largest logits are hidden
  otherwise, as by padding: `nan_if_clipped` finds the sums over E for which it
  does.

  On a TPU, the smallest and the largest logit of a row are taken as the sums of
  those of the terms (150 then limits the sum of the terms' spans). Only E then
  reads B itself, so XLA fuses the two instead of keeping B for each layer.

  Args:
    terms: tensors over subsets of `shape`.
    shape: the dimensions of E; rows run along the last one.
    visible: bool over a subset of `shape`; None hides nothing.

  Returns:
    E; c and, for `nan_if_clipped`, the least exact sum over E, which lack the
    last dimension. c has no gradient because it cancels in the quotient of two
    sums over E.
  """
  b = arrange(mtf.add_n(list(terms)), shape)
  if is_tpu(b.mesh):
    separate = [arrange(term, shape) for term in terms]
  else:
    separate = [b]
  mask = [] if visible is None else [visible]
  *rows, columns = shape.dims
  ends = [_row_ends(x, mask, rows) for x in separate]
  low = mtf.add_n([low for low, _ in ends])
  high = mtf.add_n([high for _, high in ends])
  center = mtf.slicewise(row_center, [low, high], splittable_dims=rows)
  least = mtf.slicewise(
    lambda low, center: least_exact_sum(low, center, columns.size),
    [low, center],
    splittable_dims=rows,
  )

  def gradient(op: mtf.Operation, de: mtf.Tensor) -> list[mtf.Tensor | None]:
    e = op.outputs[0]
    return [de * e, None, *(None for _ in mask)]

  e = mtf.slicewise(
    exp_from,
    [b, center, *mask],
    splittable_dims=rows,
    grad_function=gradient,
  )
  return e, center, least


def _row_ends(
  x: mtf.Tensor, mask: Sequence[mtf.Tensor], rows: Sequence[mtf.Dimension]
) -> Sequence[mtf.Tensor]:
  # Not `mtf.slicewise`, which ignores an empty output shape.
  operation = mtf.SlicewiseOperation(
    row_ends,
    [x, *mask],
    output_shapes=[mtf.Shape(rows)] * 2,
    output_dtypes=[x.dtype] * 2,
    splittable_dims=rows,
    grad_function=0,
  )
  return operation.outputs


def row_ends(
  b: tf.Tensor, visible: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the smallest and the largest visible logit of each row."""
  low = high = b
  if visible is not None:
    low = tf.where_v2(visible, b, b.dtype.max)
    high = tf.where_v2(visible, b, b.dtype.min)
  return tf.reduce_min(low, axis=-1), tf.reduce_max(high, axis=-1)


def row_center(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
  """Returns the center of rows, from their smallest and largest logits."""
  return tf.maximum((low + high) / 2, high - _MAX_EXPONENT)


def is_clipped(low: tf.Tensor, center: tf.Tensor) -> tf.Tensor:
  """Whether `exp_from` clips a logit of a row."""
  return low - center < -_MAX_EXPONENT


def least_exact_sum(
  low: tf.Tensor, center: tf.Tensor, columns: int
) -> tf.Tensor:
  """Returns the least sum over E to which clipped logits add nothing.

  They may add `columns` exp(-75), which must not exceed 2^-24 of the sum.
  """
  least = columns * math.exp(-_MAX_EXPONENT) * 2**24
  return tf.where_v2(is_clipped(low, center), tf.cast(least, low.dtype), 0.0)


def nan_if_clipped(total: mtf.Tensor, least: mtf.Tensor) -> mtf.Tensor:
  """Replaces sums over E between 0 and the least exact one by NaN."""
  least = arrange(least, total.shape)
  return mtf.slicewise(
    lambda total, least: tf.where_v2(
      (total > 0) & (total < least), float('nan'), total
    ),
    [total, least],
    splittable_dims=total.shape.dims,
    grad_function=lambda _op, dtotal: [dtotal, None],
  )


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
  total = tf.expand_dims(
    tf.where_v2(tf.equal(total, 0.0), float('inf'), total), -1
  )
  quotient = tf.cast(x, total.dtype) / total
  return tf.cast(quotient, x.dtype)
