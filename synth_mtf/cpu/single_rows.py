"""Products of a single row, as in each step of decoding.

      Y = X W = sum_i X_i W_i        Y_h = X_h W_h

X is a token and W are weights, or X_h is a query and W_h are the keys of head
h. Such a product does little but read W. A TPU is left to its compiler;
elsewhere the host has one core do it, or multiplies number by number:

  read_in_pieces   has each core multiply some of the W_i, or of the W_h
"""

import math
from typing import NamedTuple, Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

# A core multiplies a row with so many numbers of a matrix, half a megabyte; and
# so many matrices at most are multiplied one by one: the heads of an example.
_PIECE = 2**17
_MAX_PIECES = 16


def read_in_pieces(product: mtf.EinsumOperation) -> None:
  """Has a product of a single row, if it is one, read W in pieces.

  W is cut into rows that lie together, and where there is a W_h for each head,
  those are the pieces.

  Args:
    product: the host's.
  """
  rows = _SingleRows.of(product)
  if rows:
    product.__class__ = _SingleRowProduct
    product.rows = rows


class _SingleRows(NamedTuple):
  """The dimensions of Y_h = X_h W_h, those of size 1 left out.

  Attributes:
    each: h, what X, W and Y have in common; [] where W is one matrix.
    summed: those of X and W.
    columns: those of W and Y.
    rows_first: whether W_h is [summed, columns], and not [columns, summed].
  """

  each: list[mtf.Dimension]
  summed: list[mtf.Dimension]
  columns: list[mtf.Dimension]
  rows_first: bool

  @classmethod
  def of(cls, product: mtf.EinsumOperation) -> Optional['_SingleRows']:
    """None where a product is of another kind, or too small or large for it."""
    if len(product.inputs) != 2 or not product.outputs[0].dtype.is_floating:
      return None
    x, w, y = (
      [d for d in t.shape.dims if d.size > 1]
      for t in [*product.inputs, *product.outputs]
    )
    each = [d for d in w if d in x and d in y]
    summed = [d for d in w if d not in y]
    columns = [d for d in w if d not in x]
    if (
      (x, y) != (each + summed, each + columns)
      or w not in (each + summed + columns, each + columns + summed)
      or not (summed and columns)
      or mtf.Shape(each).size > _MAX_PIECES
      or not (each or mtf.Shape(w).size >= 2 * _PIECE)
    ):
      return None
    return cls(each, summed, columns, w[len(each)] in summed)


class _SingleRowProduct(mtf.EinsumOperation):
  """See `read_in_pieces`; where the mesh splits the sum, the host's way.

  Attributes:
    rows: the dimensions.
  """

  rows: _SingleRows

  def lower(self, lowering: mtf.Lowering) -> None:
    """Adds TensorFlow's operations to the graph."""
    mesh_impl = lowering.mesh_impl(self)
    rows = self.rows
    axes = map(mesh_impl.tensor_dimension_to_mesh_axis, rows.summed)
    if any(axis is not None for axis in axes):
      super().lower(lowering)
      return
    y_shape = mesh_impl.slice_shape(self.outputs[0].shape)
    matrices = math.prod(mesh_impl.slice_shape(mtf.Shape(rows.each)))

    def multiply(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
      k = x.shape.num_elements() // matrices
      x = tf.reshape(x, [matrices, 1, k])
      w = tf.reshape(w, [matrices, *((k, -1) if rows.rows_first else (-1, k))])
      if matrices == 1 and rows.rows_first:
        return tf.reshape(_sum_of_pieces(x[0], w[0]), y_shape)
      y = [
        tf.matmul(x, w, transpose_b=not rows.rows_first)
        for x, w in zip(tf.unstack(x), tf.unstack(w))
      ]
      return tf.reshape(tf.stack(y), y_shape)

    y = mesh_impl.slicewise(
      multiply, *(lowering.tensors[x] for x in self.inputs)
    )
    lowering.set_tensor_lowering(self.outputs[0], y)


def _sum_of_pieces(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
  """[1, k] times [k, columns]."""
  k = w.shape[0]
  most = max(w.shape.num_elements() // _PIECE, 1)
  pieces = next(n for n in range(most, 0, -1) if k % n == 0)
  return tf.add_n(
    [
      tf.matmul(x, w)
      for x, w in zip(tf.split(x, pieces, axis=1), tf.split(w, pieces))
    ]
  )
