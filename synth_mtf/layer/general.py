"""The weighted sum if logits differ from example to example.

    Y = softmax(B + bias) (keep * V)

The bias is -1e9 at hidden positions, as in the host; keep is the dropout of
each key. Dropout that queries do not share applies to the weights themselves.
"""

from typing import Optional

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, add, total
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.layer.dropout import Dropout
from synth_mtf.layer.z_loss import UseLogZ


def average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ] = None,
) -> mtf.Tensor:
  """softmax(B) G(X); see `weighted_sum.softmax_average`."""
  biases = visibility.biases(call.logits_dtype)
  logits = add(call, [*logits.terms, *biases])
  b = arrange(total(call, logits), call.local)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, call.memory_length))
  if call.splits(call.memory_length):
    weights = mtf.cast(mtf.softmax(b, call.memory_length), values.dtype)
  else:
    weights = kernels.softmax(b, call.memory_length, values.dtype)
  y = dropout.average(call, weights, values)
  return zero_hidden(y, visibility.queries)
