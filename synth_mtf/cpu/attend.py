"""softmax(B) V off a TPU, a tile of B after the other.

B is a sum of parts: products, tables, masks (`cpu.alignment`). A tile of it
(`cpu.tiles`) is made, used and forgotten, and made again for the gradient
(`cpu.by_tiles`). What is as large as B is never made, but for a table that is
given, and its gradient. Tiles fit into a processor's cache; what no query of a
tile sees is not computed (`cpu.windows`); and operands are transposed once
(`cpu.operands`), to

    [batch, heads, length or memory_length, k or memory_length]

with size 1 where they do not depend on a dimension: all products are plain
batched ones, and all sums broadcast.

  attend         softmax(B) V
  attend_shared  the same, where no part of B depends on the batch

A mesh may split the batch and the heads (`can_attend`).
"""

from collections.abc import Sequence
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import is_tpu
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Term
from synth_mtf.core.visibility import Visibility
from synth_mtf.cpu.alignment import Tensors, alignment
from synth_mtf.cpu.by_tiles import Kernel, by_tiles
from synth_mtf.cpu.operands import Operands
from synth_mtf.cpu.windows import Axis


def can_attend(call: LayerCall, values: mtf.Tensor) -> bool:
  """Whether the kernels here can take a call: whole rows, float32, no TPU.

  A TPU's compiler makes such a program by itself, of single steps.
  """
  whole = [*call.length, call.memory_length, call.kv_dim]
  return (
    bool(call.length)
    and not is_tpu(values.mesh)
    and values.dtype == call.logits_dtype == tf.float32
    and not any(map(call.splits, whole))
  )


def attend(
  call: LayerCall,
  parts: Sequence[Term],
  visibility: Visibility,
  values: mtf.Tensor,
) -> mtf.Tensor:
  """softmax(B) V, with B the sum of parts.

      W = softmax(B)     Y = W V
      dB = W ([dY, -sum_d dY Y] [V, 1]^T)     dV = W^T dY

  Args:
    call: the layer call.
    parts: over dimensions of [batch..., heads, length, memory_length]; what is
      hidden is in them.
    visibility: what is hidden; it is used to leave out what no query sees.
    values: V, [batch..., memory_length, heads, d_kv].

  Returns:
    Y, [batch..., length, heads, d_kv], of no use at queries that are padding.
  """
  columns = [call.kv_dim]

  def forward(b: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.nn.softmax(b), v)

  def backward(
    b: tf.Tensor, v: tf.Tensor, y: tf.Tensor, dy: tf.Tensor
  ) -> tuple[Optional[tf.Tensor], ...]:
    w = tf.nn.softmax(b)
    minus_total = -tf.reduce_sum(dy * y, axis=-1, keepdims=True)
    dy_v = tf.matmul(
      tf.concat([dy, minus_total], axis=-1),
      tf.pad(v, [[0, 0], [0, 0], [0, 0], [0, 1]], constant_values=1.0),
      transpose_b=True,
    )
    return w * dy_v, tf.matmul(w, dy, transpose_a=True)

  # Neighbouring queries see about the same.
  of = Operands(call, call.batch, by_queries=visibility.pairs is not None)
  kernel = Kernel(
    *alignment(of, parts, values),
    [of.rows(Axis.KEYS, values, columns)],
    of.masks(visibility),
    forward,
    backward,
  )
  return by_tiles(of, kernel, columns)


def attend_shared(
  call: LayerCall,
  parts: Sequence[Term],
  visibility: Visibility,
  values: mtf.Tensor,
) -> mtf.Tensor:
  """softmax(B) V, with B the sum of parts that all examples share.

      E = exp(B - c), 0 where hidden     T = E nonpad     Y = (E V) / T
      dX = dY / T     dT = -sum_d dX Y
      dB = E (dX V^T + dT nonpad^T)     dV = E^T dX

  with c the center of each row (`kernels.row_center`), which cancels. E is
  taken once for all examples: their values stand side by side.

  Args:
    call: the layer call.
    parts: over dimensions of [heads, length, memory_length].
    visibility: what is hidden; its pairs are over [length, memory_length].
    values: V, [batch..., memory_length, heads, d_kv], 0 at padding.

  Returns:
    Y, [batch..., length, heads, d_kv], of no use at queries that are padding.
  """
  pairs, nonpad = visibility.pairs, visibility.keys
  columns = [*call.batch, call.kv_dim]
  # A column of V for each head of it, and so of nonpad.
  heads = call.heads if set(call.heads) & set(values.shape.dims) else []
  of_heads = mtf.Shape([*call.batch, *heads, call.memory_length])
  if nonpad is None:
    nonpad = mtf.ones(values.mesh, of_heads)
  nonpad = mtf.stop_gradient(mtf.broadcast(nonpad, of_heads))
  d_kv = call.kv_dim.size

  def examples(x: tf.Tensor) -> tf.Tensor:
    """[1, heads, rows, batch * d_kv] as [1, heads, rows, batch, d_kv]."""
    _, heads, _, columns = x.shape
    return tf.reshape(x, [1, heads, -1, columns // d_kv, d_kv])

  def side_by_side(x: tf.Tensor) -> tf.Tensor:
    """The reverse."""
    _, heads, _, examples, _ = x.shape
    return tf.reshape(x, [1, heads, -1, examples * d_kv])

  def exp(b: tf.Tensor, seen: Tensors) -> tf.Tensor:
    return kernels.exp_from(b, kernels.row_center(b, *seen), *seen)

  def forward(b: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    *seen, nonpad, v = others
    e = exp(b, seen)
    x, total = tf.matmul(e, v), tf.matmul(e, nonpad)
    return side_by_side(kernels.divide_rows(examples(x), total))

  def backward(
    b: tf.Tensor, *others: tf.Tensor
  ) -> tuple[Optional[tf.Tensor], ...]:
    *seen, nonpad, v, y, dy = others
    e = exp(b, seen)
    dx = kernels.divide_rows(examples(dy), tf.matmul(e, nonpad))
    dtotal = -tf.reduce_sum(dx * examples(y), axis=-1)
    dx = side_by_side(dx)
    de = tf.matmul(
      tf.concat([dx, dtotal], axis=-1),
      tf.concat([v, nonpad], axis=-1),
      transpose_b=True,
    )
    dv = tf.matmul(e, dx, transpose_a=True)
    return (e * de, *(None for _ in [*seen, nonpad]), dv)

  of = Operands(call, [], by_queries=False)
  others = [
    *([] if pairs is None else [of.table(pairs)]),
    of.rows(Axis.KEYS, nonpad, call.batch),
    of.rows(Axis.KEYS, values, columns),
  ]
  kernel = Kernel(
    *alignment(of, parts, values),
    others,
    of.masks(visibility),
    forward,
    backward,
  )
  return by_tiles(of, kernel, columns)
