"""Products of tokens and weights that leave padding out.

    Y_t = X_t W     dX_t = dY_t W^T     dW = sum_t X_t^T dY_t

for each token t of all examples. At padding, Y and dX are 0, which the host
makes them too before another row sees them. A TPU multiplies all rows: shapes
are fixed there.

  mask                 marks the tokens of a sequence, once for all products
  leave_out_padding    has a product of the host's leave padding out
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.dimensions import is_tpu
from synth_mtf.core.once import once

_LEAST = 2**26  # multiplications of a product that is worth it
_MOST_TOKENS = 15 / 16  # of the rows: more are not copied, for a few less


class _Found(NamedTuple):
  """The tokens among the rows of a device.

  Attributes:
    rows: int64 [tokens, 1].
    are_few: bool.
  """

  rows: tf.Tensor
  are_few: tf.Tensor

  def among(self, x: tf.Tensor) -> tf.Tensor:
    """Those rows of [rows, columns]; all rows, if tokens are not few."""
    return self._if_few(x, lambda x: tf.gather(x, self.rows[:, 0]))

  def in_place(self, y: tf.Tensor, rows: int) -> tf.Tensor:
    """The reverse, with 0 at the other rows."""
    shape = tf.constant([rows, y.shape[1]], tf.int64)
    return self._if_few(y, lambda y: tf.scatter_nd(self.rows, y, shape))

  def _if_few(
    self, x: tf.Tensor, then: Callable[[tf.Tensor], tf.Tensor]
  ) -> tf.Tensor:
    """`tf.cond` in a third of its operations."""
    otherwise, x = tf.raw_ops.Switch(data=x, pred=self.are_few)
    return tf.raw_ops.Merge(inputs=[otherwise, then(x)]).output


class _Tokens(mtf.Operation):
  """Finds tokens; the result is the mask that it is given.

  Attributes:
    found: `_Found` of each device, laid out, by the last lowering.
  """

  found: Sequence[Any]

  def __init__(self, mask: mtf.Tensor) -> None:
    """Creates the operation.

    Args:
      mask: bool [batch..., length], true at tokens.
    """
    super().__init__([mask], name='tokens')
    self._outputs = [mtf.Tensor(self, mask.shape, mask.dtype)]

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""

    def find(mask: tf.Tensor) -> tuple[tf.Tensor, ...]:
      rows = tf.where(tf.reshape(mask, [-1]))
      most = int(mask.shape.num_elements() * _MOST_TOKENS)
      return tuple(_Found(rows, tf.shape(rows)[0] <= most))

    mask = lowering.tensors[self.inputs[0]]
    self.found = lowering.mesh_impl(self).slicewise(find, mask)
    lowering.set_tensor_lowering(self.outputs[0], mask)


def mask(
  context: transformer.Context,
  ids: Union[mtf.Tensor, int, None],
  length: mtf.Dimension,
) -> list[mtf.Tensor]:
  """The tokens of a sequence, made once for all layers.

  Args:
    context: the host's Context.
    ids: [batch..., any dimension], 0 at padding; or what decoding has there,
      where nothing is padding.
    length: that dimension in products.

  Returns:
    For `leave_out_padding`: a mask; none on a TPU, nor in steps of decoding.
  """
  if (
    not isinstance(ids, mtf.Tensor)
    or context.mode == 'incremental'
    or is_tpu(ids.mesh)
  ):
    return []

  def make() -> mtf.Tensor:
    *batch, _ = ids.shape.dims
    mask = mtf.not_equal(ids, 0)
    return _Tokens(mtf.reshape(mask, mtf.Shape([*batch, length]))).outputs[0]

  return [once(context, f'tokens of {ids.name} by {length.name}', make)]


def leave_out_padding(
  product: mtf.EinsumOperation, masks: Sequence[mtf.Tensor]
) -> None:
  """Has a product of tokens and weights, if it is one, leave padding out.

  Args:
    product: the host's.
    masks: of `mask`, for the rows that it may have.
  """
  for tokens in masks:
    factors = _Factors.of(product, tokens.shape.dims)
    if factors:
      product.__class__ = _ProductOfTokens
      product.factors = factors
      product.tokens = tokens
      return


class _Factors(NamedTuple):
  """Which of X, Y, and Z = X Y are tokens; the third one are weights.

  Attributes:
    rows: how many dimensions tokens have before those of a token.
    weights: 0, 1 or 2.
    in_order: whether weights have the dimensions of the first of the two others
      before those of the second.
  """

  rows: int
  weights: int
  in_order: bool

  @classmethod
  def of(
    cls, product: mtf.EinsumOperation, rows: Sequence[mtf.Dimension]
  ) -> Optional['_Factors']:
    """None where a product is of another kind, or too small."""
    if len(product.inputs) != 2 or not product.outputs[0].dtype.is_floating:
      return None
    shapes = [x.shape.dims for x in [*product.inputs, *product.outputs]]
    of_tokens = [dims[: len(rows)] == rows for dims in shapes]
    if sum(of_tokens) != 2:
      return None
    weights = of_tokens.index(False)
    first, second = (
      dims[len(rows) :] for dims, yes in zip(shapes, of_tokens) if yes
    )
    if (
      shapes[weights] not in (first + second, second + first)
      or mtf.Shape([*rows, *shapes[weights]]).size < _LEAST
    ):
      return None
    return cls(len(rows), weights, shapes[weights] == first + second)


class _ProductOfTokens(mtf.EinsumOperation):
  """See `leave_out_padding`.

  Attributes:
    factors: which of them are tokens.
    tokens: where these are.
  """

  factors: _Factors
  tokens: mtf.Tensor

  def gradient(self, grad_ys: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
    """The host's, which leave padding out as well."""
    gradients: list[mtf.Tensor] = super().gradient(grad_ys)
    for x in gradients:
      leave_out_padding(x.operation, [self.tokens])
    return gradients

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""
    mesh_impl = lowering.mesh_impl(self)
    shape = mesh_impl.slice_shape(self.outputs[0].shape)
    multiply = _sum if self.factors.weights == 2 else _multiply
    y = mesh_impl.slicewise(
      functools.partial(multiply, self.factors, shape),
      *(lowering.tensors[x] for x in self.inputs),
      *self.tokens.operation.found,
    )
    given = {d for x in self.inputs for d in x.shape.dims}
    summed = given.difference(self.outputs[0].shape.dims)
    axes = map(mesh_impl.tensor_dimension_to_mesh_axis, summed)
    split = [axis for axis in axes if axis is not None]
    if split:
      y = mtf.LazyAllreduceSum(mesh_impl, y, split)
    lowering.set_tensor_lowering(self.outputs[0], y)


def _multiply(
  factors: _Factors,
  shape: Sequence[int],
  x: tf.Tensor,
  y: tf.Tensor,
  *found: tf.Tensor,
) -> tf.Tensor:
  """Tokens times weights, or weights times tokens."""
  x, w = (y, x) if factors.weights == 0 else (x, y)
  tokens, rows = _Found(*found), math.prod(shape[: factors.rows])
  x = tf.reshape(x, [rows, -1])
  k = x.shape[1]
  w = tf.reshape(w, [k, -1] if factors.in_order else [-1, k])
  z = tf.matmul(tokens.among(x), w, transpose_b=not factors.in_order)
  return tf.reshape(tokens.in_place(z, rows), shape)


def _sum(
  factors: _Factors,
  shape: Sequence[int],
  x: tf.Tensor,
  y: tf.Tensor,
  *found: tf.Tensor,
) -> tf.Tensor:
  """Tokens times tokens.

  Those of y are copied when x is there: if they were kept from where they were
  last copied, all layers would keep them.
  """
  tokens, rows = _Found(*found), math.prod(x.shape[: factors.rows])
  x = tokens.among(tf.reshape(x, [rows, -1]))
  with tf.control_dependencies([x]):
    y = tokens.among(tf.reshape(y, [rows, -1]))
  if not factors.in_order:
    x, y = y, x
  return tf.reshape(tf.matmul(x, y, transpose_a=True), shape)
