"""Products of tokens and weights that skip padding, for CPUs.

    Y_t = X_t W     dX_t = dY_t W^T     dW = sum_t X_t^T dY_t

for each token t of all examples. Y and dX are 0 at padding, where the host also
zeroes them before they reach other rows.
"""

from collections.abc import Callable, Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.context import cached
from synth_mtf.core.dimensions import is_tpu, on_cpu, sum_over_devices

_LEAST = 2**26  # multiplications below which skipping does not pay
_MOST_TOKENS = 15 / 16  # fraction of rows above which no rows are copied


def mask(
  context: transformer.Context,
  ids: mtf.Tensor | int | None,
  length: mtf.Dimension,
) -> list[mtf.Tensor]:
  """Returns the mask of a sequence's tokens, cached for all layers.

  The ids are [batch..., any dimension] and 0 at padding; the mask, for
  `einsum`, is bool [batch..., length]. There is none on TPUs, which need static
  shapes, or in incremental decoding, which has no padding.
  """
  if (
    not isinstance(ids, mtf.Tensor)
    or context.mode == 'incremental'
    or is_tpu(ids.mesh)
  ):
    return []
  shape = mtf.Shape([*ids.shape.dims[:-1], length])
  return [
    cached(
      context,
      f'tokens of {ids.name} by {length.name}',
      lambda: mtf.reshape(mtf.not_equal(ids, 0), shape),
    )
  ]


def einsum(
  masks: Sequence[mtf.Tensor],
  xs: Sequence[mtf.Tensor],
  output_shape: mtf.Shape,
) -> mtf.Tensor:
  """Like `mtf.einsum`, but products of tokens and weights skip padding.

  `masks` come from `mask`; the first one that fits the product's rows is used.
  """
  for tokens in masks:
    weights = _find_weights(xs, output_shape, tokens.shape.dims)
    if weights:
      return _ProductOfTokens(xs, output_shape, tokens, weights).outputs[0]
  return mtf.einsum(xs, output_shape)


def _find_weights(
  xs: Sequence[mtf.Tensor],
  output_shape: mtf.Shape,
  rows: Sequence[mtf.Dimension],
) -> tuple[int, bool] | None:
  """Finds which of X, Y and Z = X Y are the weights; the others are tokens.

  Returns:
    The index of the weights (0, 1 or 2), and whether their dimensions are in
    the order of the other two tensors; None for other or small products.
  """
  if len(xs) != 2 or not xs[0].dtype.is_floating:
    return None
  shapes = [*(x.shape.dims for x in xs), output_shape.dims]
  others = [dims[len(rows) :] for dims in shapes if dims[: len(rows)] == rows]
  if len(others) != 2:
    return None
  number = next(i for i, d in enumerate(shapes) if d[: len(rows)] != rows)
  weights, (first, second) = shapes[number], others
  if (
    weights not in (first + second, second + first)
    or mtf.Shape([*rows, *weights]).size < _LEAST
  ):
    return None
  return number, weights == first + second


class _ProductOfTokens(mtf.EinsumOperation):
  """Implements `einsum`; uses the host's product except on CPUs."""

  def __init__(
    self,
    xs: Sequence[mtf.Tensor],
    output_shape: mtf.Shape,
    tokens: mtf.Tensor,
    weights: tuple[int, bool],
  ) -> None:
    super().__init__(xs, output_shape)
    self._tokens = tokens
    self._weights, self._in_order = weights

  def gradient(self, grad_ys: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
    x, y = self.inputs
    return [
      einsum([self._tokens], [*grad_ys, other], of.shape)
      for of, other in ((x, y), (y, x))
    ]

  def lower(self, lowering: mtf.Lowering) -> None:
    mesh_impl = lowering.mesh_impl(self)
    if not on_cpu(mesh_impl):
      super().lower(lowering)
      return
    shape = mesh_impl.slice_shape(self.outputs[0].shape)

    def multiply(x: tf.Tensor, y: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
      rows = mask.shape.num_elements()
      at = tf.where(tf.reshape(mask, [-1]))
      are_few = tf.shape(at)[0] <= int(rows * _MOST_TOKENS)

      def if_few(
        x: tf.Tensor, then: Callable[[tf.Tensor], tf.Tensor]
      ) -> tf.Tensor:
        """Like `tf.cond`, but with a third of the operations."""
        otherwise, x = tf.raw_ops.Switch(data=x, pred=are_few)
        return tf.raw_ops.Merge(inputs=[otherwise, then(x)]).output

      def tokens(x: tf.Tensor) -> tf.Tensor:
        """Returns [tokens, columns], or all rows unless tokens are few."""
        x = tf.reshape(x, [rows, -1])
        return if_few(x, lambda x: tf.gather(x, at[:, 0]))

      if self._weights == 2:
        # The rows of y are copied again, after x. Reusing an earlier copy
        # would keep one for every layer in memory.
        x = tokens(x)
        with tf.control_dependencies([x]):
          y = tokens(y)
        first, second = (x, y) if self._in_order else (y, x)
        return tf.reshape(tf.matmul(first, second, transpose_a=True), shape)
      x, w = (y, x) if self._weights == 0 else (x, y)
      x = tokens(x)
      k = x.shape[1]
      w = tf.reshape(w, [k, -1] if self._in_order else [-1, k])
      z = tf.matmul(x, w, transpose_b=not self._in_order)
      whole = tf.constant([rows, z.shape[1]], tf.int64)
      return tf.reshape(if_few(z, lambda z: tf.scatter_nd(at, z, whole)), shape)

    given = [*self.inputs, self._tokens]
    y = mesh_impl.slicewise(multiply, *(lowering.tensors[x] for x in given))
    used = {d for x in self.inputs for d in x.shape.dims}
    summed = used.difference(self.outputs[0].shape.dims)
    y = sum_over_devices(mesh_impl, y, summed)
    lowering.set_tensor_lowering(self.outputs[0], y)
