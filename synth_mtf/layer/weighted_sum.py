"""From alignment logits and visibility to weighted values.

    Y = dropout(softmax(B)) G(X)

The softmax is over the visible part of `memory_length`; hidden logits get the
host's bias of -1e9. If B has no batch dimension, `batch_shared` takes the
exponentials once for the whole batch: padding enters its two products with
them, and nothing of size [batch, heads, length, memory_length] is made. On a
CPU, `cpu.attend_each` and `attend_shared` compute the same by tiles.
"""

from typing import Optional

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, add, total
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.cpu import attend_each, attend_shared, can_attend
from synth_mtf.layer.batch_shared import UseLogZ, batch_shared_average
from synth_mtf.layer.dropout import Dropout


def softmax_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ] = None,
) -> mtf.Tensor:
  """softmax(B) G(X) (eq. 3).

  Args:
    call: the layer call.
    logits: B.
    visibility: what takes part in the softmax.
    values: G(X), [batch..., memory_length, heads, d_kv].
    dropout: dropout of the weights.
    use_log_z: if given, is called with the logarithm of the softmax's
      denominator, [batch..., heads, length].

  Returns:
    Y, [batch..., length, heads, d_kv], 0 at padding.
  """
  pairs = visibility.pairs
  shares_weights = (
    not logits.local
    and (pairs is None or set(pairs.shape.dims) <= set(call.shared))
    and dropout.per_key(call)
    and not call.splits(call.memory_length)
  )
  if use_log_z is None and dropout.per_key(call) and can_attend(call, values):
    attend = attend_shared if shares_weights else attend_each
    values = dropout.drop_values(values, call)
    y = attend(call, logits, visibility, values)
    return zero_hidden(y, visibility.queries)
  if shares_weights:
    return batch_shared_average(
      call, logits, visibility, values, dropout, use_log_z
    )
  biases = visibility.biases(call.logits_dtype)
  b = arrange(total(call, add(call, [*logits.terms, *biases])), call.local)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, call.memory_length))
  if call.splits(call.memory_length):
    weights = mtf.cast(mtf.softmax(b, call.memory_length), values.dtype)
  else:
    weights = kernels.softmax(b, call.memory_length, values.dtype)
  y = dropout.average(call, weights, values)
  return zero_hidden(y, visibility.queries)


def unnormalized_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
) -> mtf.Tensor:
  """B G(X): the logits themselves are the weights, as in an MLP-Mixer."""
  weights = zero_hidden(total(call, logits), visibility.pairs)
  values = zero_hidden(values, visibility.keys)
  y = dropout.average(call, weights, values)
  return zero_hidden(y, visibility.queries)
