"""Adafactor with fewer passes over what is as large as a variable."""

from typing import Any, Optional

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.dimensions import is_tpu


@gin.configurable('Adafactor', module='synth_mtf')
class AdafactorOptimizer(mtf.optimize.AdafactorOptimizer):
  """The host's Adafactor (Shazeer and Stern, arXiv 1804.04235), off a TPU.

  A TPU's compiler joins passes over memory by itself: there, and for what is no
  matrix for an `AdafactorStep`, each update is the host's own.

  For `utils.run.optimizer`. Arguments and variables are the host's.
  """

  def apply_grad(
    self, grad: Optional[mtf.Tensor], var: mtf.Variable
  ) -> list[mtf.Operation]:
    """Updates a variable and what is kept for it.

    Args:
      grad: its gradient; None leaves it as it is.
      var: the variable.

    Returns:
      The assignments.
    """
    axes = self._factored_dims(var.shape)
    if (
      grad is None
      or is_tpu(var.mesh)
      or self._beta1
      or self._stacked_dim_names
      or not axes
      or {*axes} != {*var.shape.dims[-2:]}
    ):
      return super().apply_grad(grad, var)
    kept = [
      mtf.get_variable(
        var.mesh,
        f'{var.name}_slot_{name}',
        var.shape - axis,
        initializer=tf.zeros_initializer(),
        trainable=False,
      )
      for name, axis in zip(('vr', 'vc'), axes)
    ]
    scaled = self._multiply_by_parameter_scale and not any(
      name in var.name for name in self._exclude_from_parameter_scale
    )
    step = AdafactorStep(
      *map(mtf.to_float, (grad, var.value)),
      *kept,
      rate=self._learning_rate,
      decay=self._decay_rate,
      threshold=self._clipping_threshold,
      least_square=self._epsilon1,
      least_scale=self._epsilon2 if scaled else None,
    )
    change, *means = step.outputs
    return [*map(mtf.assign, kept, means), mtf.assign_sub(var, change)]


class AdafactorStep(mtf.Operation):
  """A step of Adafactor for matrices W with gradients G.

      R' = beta R + (1 - beta) (mean of G^2 over the longer axis + epsilon1)
      C' = beta C + (1 - beta) (mean of G^2 over the shorter one + epsilon1)
      U = G sqrt(r) sqrt(c),  r = (mean of R') / R',  c = 1 / C'
      W' = W - eta max(epsilon2, rms W) U / max(1, rms U / threshold)

  The host reads or writes something of the size of W 20 times. Here it is 14
  times, since U itself is not needed for

      (rms U)^2 = mean of r (G^2 c),

  and all scalars are multiplied into a vector.
  """

  def __init__(
    self,
    grad: mtf.Tensor,
    value: mtf.Tensor,
    vr: mtf.Tensor,
    vc: mtf.Tensor,
    **settings: Any,
  ) -> None:
    """Creates the operation; its outputs are W - W', R' and C'.

    Args:
      grad: G, [..., rows, columns].
      value: W, of that shape.
      vr: R, which lacks the longer of the last two dimensions.
      vc: C, which lacks the shorter one.
      **settings: rate: eta; decay: beta; threshold, least_square (epsilon1) and
        least_scale (epsilon2); None: U is not clipped, W has no scale.
    """
    super().__init__([grad, value, vr, vc], name='adafactor')
    self._settings = settings
    self._outputs = [
      mtf.Tensor(self, x.shape, tf.float32) for x in (grad, vr, vc)
    ]

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""
    mesh_impl = lowering.mesh_impl(self)
    each = mesh_impl.slicewise
    grad, value, *kept = (lowering.tensors[x] for x in self.inputs)
    shape, decay = self.inputs[0].shape, self._settings['decay']
    (longer,), (shorter,) = ((shape - x.shape).dims for x in self.inputs[2:])
    rows_are_longer = longer == shape.dims[-2]

    def whole(dims: list[mtf.Dimension], total: Any) -> Any:
      """Adds up what the devices that part these dimensions have."""
      axes = map(mesh_impl.tensor_dimension_to_mesh_axis, dims)
      split = [axis for axis in axes if axis is not None]
      return mesh_impl.allreduce(total, split, 'SUM') if split else total

    squared = each(tf.square, grad)
    vr, vc = (
      each(
        lambda v, total, size=axis.size: (
          decay * v
          + (1 - decay) * (total / size + self._settings['least_square'])
        ),
        v,
        whole([axis], each(_sum_rows if is_rows else _sum_columns, squared)),
      )
      for v, axis, is_rows in [
        (kept[0], longer, rows_are_longer),
        (kept[1], shorter, not rows_are_longer),
      ]
    )
    total = whole([shorter], each(_sum_columns, vr))
    r = each(
      lambda r, total: total[..., tf.newaxis] / shorter.size / r, vr, total
    )
    c = each(tf.math.reciprocal, vc)
    scale = self._settings['rate']
    least = self._settings['least_scale']
    if least is not None:
      w2 = whole(shape.dims, each(lambda w: 2 * tf.nn.l2_loss(w), value))
      scale = each(
        lambda w2: scale * tf.maximum(tf.sqrt(w2 / shape.size), least), w2
      )
    threshold = self._settings['threshold']
    if threshold is not None:
      u2 = each(
        lambda r, squared, c: tf.reduce_sum(
          r * tf.linalg.matvec(squared, c, transpose_a=rows_are_longer)
        ),
        r,
        squared,
        c,
      )
      scale = each(
        lambda scale, u2: (
          scale / tf.maximum(1.0, tf.sqrt(u2 / shape.size) / threshold)
        ),
        scale,
        whole(shape.dims, u2),
      )
    r = each(lambda r, scale: tf.sqrt(r) * scale, r, scale)
    c = each(tf.sqrt, c)
    by_row, by_column = (c, r) if rows_are_longer else (r, c)
    change = each(
      lambda g, r, c: g * tf.matmul(r[..., tf.newaxis], c[..., tf.newaxis, :]),
      grad,
      by_row,
      by_column,
    )
    for y, slices in zip(self.outputs, (change, vr, vc)):
      lowering.set_tensor_lowering(y, slices)


def _sum_columns(x: tf.Tensor) -> tf.Tensor:
  return tf.reduce_sum(x, axis=-1)


def _sum_rows(x: tf.Tensor) -> tf.Tensor:
  """As a product, in half the time of a sum."""
  ones = tf.ones([*x.shape[:-2], x.shape[-2]])
  return tf.linalg.matvec(x, ones, transpose_a=True)
