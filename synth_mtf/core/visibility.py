"""Which memory positions a query may see."""

import dataclasses
from typing import Optional

import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.layer_call import LayerCall, once


@dataclasses.dataclass(frozen=True)
class Visibility:
  """What is visible, split by what it depends on.

  A pair (query, key) is visible where all of these agree; None hides nothing.

  Attributes:
    pairs: bool over [length, memory_length], plus batch dimensions where rows
      differ in more than padding: causality, segments, a full prefix.
    keys: 1 at tokens and 0 at padding, [batch..., memory_length].
    queries: the same, [batch..., length].
  """

  pairs: Optional[mtf.Tensor]
  keys: Optional[mtf.Tensor]
  queries: Optional[mtf.Tensor]


def visibility(call: LayerCall, packed: bool) -> Visibility:
  """Visibility of a layer call.

      visible(i, j) = read_priority_i >= write_priority_j  and
                      sequence_id_i = sequence_id_j

  as in the host. In an unpacked row the second line says no more than that
  padding is hidden, which takes a mask over keys instead of one over pairs
  (and one over queries, whose output at padding the host makes zero).

  Args:
    call: the layer call.
    packed: whether a row may hold several sequences.

  Returns:
    A Visibility.
  """
  context = call.context
  causal = _causal(context)
  sequence_id = row_sequence_id(context)
  if sequence_id is None:
    return Visibility(causal, None, None)
  if packed:
    same = mtf.equal(sequence_id, _as_memory(sequence_id, call))
    pairs = same if causal is None else mtf.logical_and(causal, same)
    return Visibility(pairs, None, None)
  tokens = mtf.cast(mtf.not_equal(sequence_id, 0), context.activation_dtype)
  return Visibility(causal, _as_memory(tokens, call), tokens)


def row_sequence_id(context: transformer.Context) -> Optional[mtf.Tensor]:
  """The segment id of each token, [batch..., length], where there are any."""
  for ids in (context.subsequence_id, context.sequence_id):
    if isinstance(ids, mtf.Tensor) and context.length_dim in ids.shape.dims:
      return ids
  return None


def _causal(context: transformer.Context) -> Optional[mtf.Tensor]:
  """[length, memory_length] in a decoder; None in an encoder."""
  if context.read_priority is None:
    return None
  return once(
    context,
    'causal',
    lambda: mtf.greater_equal(
      context.read_priority,
      mtf.layers.rename_length_to_memory_length(context.write_priority),
    ),
  )


def _as_memory(x: mtf.Tensor, call: LayerCall) -> mtf.Tensor:
  return mtf.replace_dimensions(x, call.context.length_dim, call.memory_length)
