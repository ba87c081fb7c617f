"""Products of tokens and weights that skip padding, for CPUs.

    Y_t = X_t W     dX_t = dY_t W^T     dW = sum_t X_t^T dY_t

for each token t of all examples. Y and dX are 0 at padding, where the host also
zeroes them before they reach other rows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

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
  `einsum`, is bool [batch..., length]. The list is empty on TPUs, which need
  static shapes, and in incremental decoding, which has no padding.
  """
  if not isinstance(ids, mtf.Tensor) or is_tpu(ids.mesh):
    return []
  if context.mode == 'incremental':
    return []
  shape = mtf.Shape([*ids.shape.dims[:-1], length])
  tokens = cached(
    context,
    f'tokens of {ids.name} by {length.name}',
    lambda: mtf.reshape(mtf.not_equal(ids, 0), shape),
  )
  return [tokens]


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


class _Weights(NamedTuple):
  """Which tensor of a product Z = X Y holds the weights.

  Attributes:
    number: 0 for X, 1 for Y, 2 for Z. The other two tensors hold tokens.
    in_order: whether the weights' dimensions are in the order of the others.
  """

  number: int
  in_order: bool


def _find_weights(
  xs: Sequence[mtf.Tensor],
  output_shape: mtf.Shape,
  rows: Sequence[mtf.Dimension],
) -> _Weights | None:
  """Finds the weights of a product of tokens; None if it is another one.

  Also returns None if the product is too small for skipping to pay.
  """
  if len(xs) != 2 or not xs[0].dtype.is_floating:
    return None
  shapes = [xs[0].shape.dims, xs[1].shape.dims, output_shape.dims]
  are_tokens = [dims[: len(rows)] == rows for dims in shapes]
  if sum(are_tokens) != 2:
    return None
  number = are_tokens.index(False)
  weights = shapes.pop(number)
  first, second = (dims[len(rows) :] for dims in shapes)
  if weights not in (first + second, second + first):
    return None
  if mtf.Shape([*rows, *weights]).size < _LEAST:
    return None
  return _Weights(number, in_order=weights == first + second)


class _ProductOfTokens(mtf.EinsumOperation):
  """Implements `einsum`; uses the host's product except on CPUs."""

  def __init__(
    self,
    xs: Sequence[mtf.Tensor],
    output_shape: mtf.Shape,
    tokens: mtf.Tensor,
    weights: _Weights,
  ) -> None:
    super().__init__(xs, output_shape)
    self._tokens = tokens
    self._weights = weights

  def gradient(self, grad_ys: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
    (dz,) = grad_ys
    x, y = self.inputs
    masks = [self._tokens]
    return [einsum(masks, [dz, y], x.shape), einsum(masks, [dz, x], y.shape)]

  def lower(self, lowering: mtf.Lowering) -> None:
    mesh_impl = lowering.mesh_impl(self)
    if not on_cpu(mesh_impl):
      super().lower(lowering)
      return
    z_shape = self.outputs[0].shape
    slice_shape = mesh_impl.slice_shape(z_shape)

    def multiply(x: tf.Tensor, y: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
      return tf.reshape(self._multiply(x, y, _Rows(mask)), slice_shape)

    inputs = [*self.inputs, self._tokens]
    z = mesh_impl.slicewise(multiply, *(lowering.tensors[x] for x in inputs))
    used = {d for x in self.inputs for d in x.shape.dims}
    z = sum_over_devices(mesh_impl, z, used.difference(z_shape.dims))
    lowering.set_tensor_lowering(self.outputs[0], z)

  def _multiply(self, x: tf.Tensor, y: tf.Tensor, rows: '_Rows') -> tf.Tensor:
    """Multiplies slices; returns a matrix with the entries of Z."""
    number, in_order = self._weights
    if number == 2:
      # The rows of y are copied again, after x. Reusing an earlier copy would
      # keep one for every layer in memory.
      x = rows.tokens(x)
      with tf.control_dependencies([x]):
        y = rows.tokens(y)
      if in_order:
        return tf.matmul(x, y, transpose_a=True)
      return tf.matmul(y, x, transpose_a=True)
    weights, x = (x, y) if number == 0 else (y, x)
    x = rows.tokens(x)
    k = x.shape[1]
    weights = tf.reshape(weights, [k, -1] if in_order else [-1, k])
    return rows.spread(tf.matmul(x, weights, transpose_b=not in_order))


class _Rows:
  """The rows of tokens and padding on one device."""

  def __init__(self, mask: tf.Tensor) -> None:
    """Finds the tokens in a mask, bool [batch..., length]."""
    self._number = mask.shape.num_elements()
    self._indices = tf.where(tf.reshape(mask, [-1]))
    most = int(self._number * _MOST_TOKENS)
    self._are_few = tf.shape(self._indices)[0] <= most

  def tokens(self, x: tf.Tensor) -> tf.Tensor:
    """Returns [tokens, columns], or all rows unless tokens are few."""
    x = tf.reshape(x, [self._number, -1])
    return self._if_few(x, lambda x: tf.gather(x, self._indices[:, 0]))

  def spread(self, x: tf.Tensor) -> tf.Tensor:
    """Returns all rows from those of `tokens`, with zeros at padding."""
    shape = tf.constant([self._number, x.shape[1]], tf.int64)
    return self._if_few(x, lambda x: tf.scatter_nd(self._indices, x, shape))

  def _if_few(
    self, x: tf.Tensor, change: Callable[[tf.Tensor], tf.Tensor]
  ) -> tf.Tensor:
    """Like `tf.cond`, but with a third of the operations."""
    unchanged, x = tf.raw_ops.Switch(data=x, pred=self._are_few)
    return tf.raw_ops.Merge(inputs=[unchanged, change(x)]).output
