"""Masks of the memory positions that each query may attend to."""

import dataclasses
from collections.abc import Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.context import cached, row_sequence_id
from synth_mtf.core.layer_call import LayerCall

_HIDDEN = -1e9  # the host's bias for hidden logits


@dataclasses.dataclass(frozen=True)
class Visibility:
  """Visibility, split into masks over pairs, keys and queries.

  A key is visible to a query if all masks allow it; None hides nothing.

  Attributes:
    pairs: bool over [length, memory_length] for causality, segments and fully
      visible prefixes, plus batch dimensions if rows differ in these.
    keys: 1 at tokens and 0 at padding, [batch..., memory_length].
    queries: like `keys`, [batch..., length].
  """

  pairs: mtf.Tensor | None
  keys: mtf.Tensor | None
  queries: mtf.Tensor | None

  @property
  def masks(self) -> list[mtf.Tensor]:
    return [x for x in (self.pairs, self.keys, self.queries) if x is not None]

  def biases(self, dtype: tf.DType) -> list[mtf.Tensor]:
    """Returns terms of the logits that hide keys, like the host's biases."""
    return [
      mtf.stop_gradient((1.0 - mtf.cast(x, dtype)) * _HIDDEN)
      for x in (self.pairs, self.keys)
      if x is not None
    ]


def zero_hidden(x: mtf.Tensor, visible: mtf.Tensor | None) -> mtf.Tensor:
  """Sets x to 0 where `visible` is 0; None hides nothing.

  So it does with gradients, even with infinity and NaN.
  """
  if visible is None:
    return x
  return _ZeroHidden(x, mtf.cast(visible, x.dtype)).outputs[0]


class _ZeroHidden(mtf.BinaryOpWithBroadcasting):
  """A product with a mask of 0 and 1, in which infinity times 0 is 0."""

  def __init__(self, x: mtf.Tensor, visible: mtf.Tensor) -> None:
    given = set(x.shape.dims)
    missing = [d for d in visible.shape.dims if d not in given]
    shape = mtf.Shape([*missing, *x.shape.dims])
    super().__init__(tf.math.multiply_no_nan, x, visible, shape, x.dtype)

  def gradient(self, grad_ys: Sequence[mtf.Tensor]) -> list[mtf.Tensor | None]:
    x, visible = self.inputs
    dx = zero_hidden(grad_ys[0], visible)
    return [mtf.reduce_sum(dx, output_shape=x.shape), None]


def visibility(call: LayerCall, packed: bool) -> Visibility:
  """Returns which of its own tokens a layer sees.

      visible(i, j) = read_priority_i >= write_priority_j  and
                      sequence_id_i = sequence_id_j

  as in the host. In an unpacked row the second condition only hides padding. A
  mask over keys suffices, with one over queries to zero the output at padding.

  `packed` says whether a row may hold several sequences.
  """
  context = call.context
  causal = _causal(context)
  sequence_id = row_sequence_id(context)
  if sequence_id is None:
    return Visibility(causal, None, None)
  if packed:
    same = mtf.equal(
      sequence_id, mtf.layers.rename_length_to_memory_length(sequence_id)
    )
    pairs = same if causal is None else mtf.logical_and(causal, same)
    return Visibility(pairs, None, None)
  tokens = _tokens(sequence_id, context)
  return Visibility(
    causal, mtf.layers.rename_length_to_memory_length(tokens), tokens
  )


def encoder_visibility(call: LayerCall, packed: bool) -> Visibility:
  """Returns which of the encoder's tokens the decoder's tokens see.

      visible(i, j) = sequence_id_i = encoder_sequence_id_j

  as in the host. Tokens that see nothing (padding, or a target without inputs)
  have an output of 0; in packed rows, the host averages over other sequences.

  `packed` says whether a row may hold several sequences.
  """
  context = call.context
  keys = context.encoder_sequence_id
  if keys is None:
    return Visibility(None, None, None)
  # Not subsequence_id, since all targets of one input see it.
  queries = context.sequence_id
  if packed:
    pairs = mtf.equal(queries, keys)
    see = mtf.logical_and(
      mtf.not_equal(queries, 0),
      mtf.reduce_any(pairs, reduced_dim=call.memory_length),
    )
    return Visibility(pairs, None, see)
  keys, queries = _tokens(keys, context), _tokens(queries, context)
  if queries is not None:
    queries *= mtf.reduce_max(keys, reduced_dim=call.memory_length)
  return Visibility(None, keys, queries)


def _causal(context: transformer.Context) -> mtf.Tensor | None:
  """[length, memory_length] in a decoder; None in an encoder."""
  if context.read_priority is None:
    return None
  return cached(
    context,
    'causal',
    lambda: mtf.greater_equal(
      context.read_priority,
      mtf.layers.rename_length_to_memory_length(context.write_priority),
    ),
  )


def _tokens(
  sequence_id: mtf.Tensor | int, context: transformer.Context
) -> mtf.Tensor | None:
  """Returns 1 at tokens and 0 at padding; None if there is no padding."""
  if not isinstance(sequence_id, mtf.Tensor):
    return None
  return mtf.cast(mtf.not_equal(sequence_id, 0), context.activation_dtype)
