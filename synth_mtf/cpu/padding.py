"""Products of tokens and weights that leave padding out, for CPUs.

    Y_t = X_t W     dX_t = dY_t W^T     dW = sum_t X_t^T dY_t

for each token t of all examples. At padding, Y and dX are 0; the host zeroes
them there too, before another row sees them.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.context import cached
from synth_mtf.core.dimensions import is_tpu
from synth_mtf.cpu.devices import on_cpu

_LEAST = 2**26  # multiplications in a product that is worth it
_MOST_TOKENS = 15 / 16  # share of the rows; with more, nothing is copied


def mask(
  context: transformer.Context,
  ids: Union[mtf.Tensor, int, None],
  length: mtf.Dimension,
) -> list[mtf.Tensor]:
  """Marks the tokens of a sequence, once for all layers.

  Args:
    context: the host's Context.
    ids: [batch..., any dimension], 0 at padding; or what decoding has there.
    length: the name of that dimension in products.

  Returns:
    A mask for `einsum`, bool [batch..., length]; none on a TPU, whose shapes
    are fixed, nor in steps of decoding, which have no padding.
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
      lambda: _Tokens(mtf.reshape(mtf.not_equal(ids, 0), shape)).outputs[0],
    )
  ]


def einsum(
  masks: Sequence[mtf.Tensor],
  xs: Sequence[mtf.Tensor],
  output_shape: mtf.Shape,
) -> mtf.Tensor:
  """`mtf.einsum`, but products of tokens and weights leave padding out.

  Args:
    masks: from `mask`, for the rows that products may have.
    xs: the factors.
    output_shape: of the result.
  """
  for tokens in masks:
    factors = _Factors.find(xs, output_shape, tokens.shape.dims)
    if factors:
      return _ProductOfTokens(xs, output_shape, factors, tokens).outputs[0]
  return mtf.einsum(xs, output_shape)


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
  """Finds the tokens of a mask, and passes the mask on.

  Attributes:
    found: the last lowering's `_Found`, laid out.
  """

  found: Sequence[Any] = ()

  def __init__(self, mask: mtf.Tensor) -> None:
    super().__init__([mask], name='tokens')
    self._outputs = [mtf.Tensor(self, mask.shape, mask.dtype)]

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""

    def find(mask: tf.Tensor) -> tuple[tf.Tensor, ...]:
      rows = tf.where(tf.reshape(mask, [-1]))
      most = int(mask.shape.num_elements() * _MOST_TOKENS)
      return tuple(_Found(rows, tf.shape(rows)[0] <= most))

    mesh_impl = lowering.mesh_impl(self)
    mask = lowering.tensors[self.inputs[0]]
    if on_cpu(mesh_impl):
      self.found = mesh_impl.slicewise(find, mask)
    lowering.set_tensor_lowering(self.outputs[0], mask)


class _Factors(NamedTuple):
  """Which of X, Y and Z = X Y are tokens; the third are weights.

  Attributes:
    rows: number of dimensions that tokens have before those of a token.
    weights: 0, 1 or 2.
    in_order: whether weights have the dimensions of the first of the other two
      before those of the second.
  """

  rows: int
  weights: int
  in_order: bool

  @classmethod
  def find(
    cls,
    xs: Sequence[mtf.Tensor],
    output_shape: mtf.Shape,
    rows: Sequence[mtf.Dimension],
  ) -> Optional['_Factors']:
    """None if the product is of another kind, or small."""
    if len(xs) != 2 or not xs[0].dtype.is_floating:
      return None
    shapes = [*(x.shape.dims for x in xs), output_shape.dims]
    are_tokens = [dims[: len(rows)] == rows for dims in shapes]
    if sum(are_tokens) != 2:
      return None
    weights = are_tokens.index(False)
    first, second = (
      dims[len(rows) :] for dims, yes in zip(shapes, are_tokens) if yes
    )
    if (
      shapes[weights] not in (first + second, second + first)
      or mtf.Shape([*rows, *shapes[weights]]).size < _LEAST
    ):
      return None
    return cls(len(rows), weights, shapes[weights] == first + second)


class _ProductOfTokens(mtf.EinsumOperation):
  """See `einsum`; the host's product on devices other than CPUs."""

  def __init__(
    self,
    xs: Sequence[mtf.Tensor],
    output_shape: mtf.Shape,
    factors: _Factors,
    tokens: mtf.Tensor,
  ) -> None:
    """Creates the operation.

    Args:
      xs: the factors.
      output_shape: of the result.
      factors: which of them are tokens.
      tokens: where these are.
    """
    super().__init__(xs, output_shape)
    self._factors = factors
    self._tokens = tokens

  def gradient(self, grad_ys: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
    """The gradients, which leave padding out as well."""
    x, y = self.inputs
    return [
      einsum([self._tokens], [*grad_ys, other], of.shape)
      for of, other in ((x, y), (y, x))
    ]

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""
    mesh_impl = lowering.mesh_impl(self)
    if not on_cpu(mesh_impl):
      super().lower(lowering)
      return
    shape = mesh_impl.slice_shape(self.outputs[0].shape)
    multiply = _sum if self._factors.weights == 2 else _multiply
    y = mesh_impl.slicewise(
      functools.partial(multiply, self._factors, shape),
      *(lowering.tensors[x] for x in self.inputs),
      *self._tokens.operation.found,
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

  Those of y are copied when x is there: kept from where they were last copied,
  all layers would keep them.
  """
  tokens, rows = _Found(*found), math.prod(x.shape[: factors.rows])
  x = tokens.among(tf.reshape(x, [rows, -1]))
  with tf.control_dependencies([x]):
    y = tokens.among(tf.reshape(y, [rows, -1]))
  if not factors.in_order:
    x, y = y, x
  return tf.reshape(tf.matmul(x, y, transpose_a=True), shape)
