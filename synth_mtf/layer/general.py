"""The weighted sum if logits differ from example to example.

    Y = softmax(B + bias) (keep * V)

The bias is -1e9 at hidden positions, as in the host; keep is the dropout of
each key. Dropout that queries do not share applies to the weights themselves.
`cpu.attend` computes all of this where it can, single operations elsewhere.
"""

from typing import Optional

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, add, total
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.cpu.attend import attend, can_attend
from synth_mtf.layer.dropout import Dropout
from synth_mtf.layer.z_loss import UseLogZ

_HIDDEN = -1e9  # what the host adds to hidden logits


def average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ] = None,
) -> mtf.Tensor:
  """softmax(B) G(X); see `weighted_sum.softmax_average`."""
  logits = add(call, [*logits.terms, *hiding_bias(call, visibility)])
  if use_log_z is None and dropout.per_key(call) and can_attend(call, values):
    values = dropout.drop_values(values, call)
    y = attend(call, logits.terms, visibility, values)
  else:
    y = _step_by_step(call, logits, values, dropout, use_log_z)
  return zero_hidden(y, visibility.queries)


def hiding_bias(call: LayerCall, visibility: Visibility) -> list[mtf.Tensor]:
  """Terms that hide what is not visible from a softmax of the logits."""
  seen = [x for x in (visibility.pairs, visibility.keys) if x is not None]
  hide = [(1.0 - mtf.cast(x, call.logits_dtype)) * _HIDDEN for x in seen]
  return [mtf.stop_gradient(x) for x in hide]


def _step_by_step(
  call: LayerCall,
  logits: Logits,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ],
) -> mtf.Tensor:
  """Y by operations that any mesh can split and a TPU's compiler can join."""
  b = arrange(total(call, logits), call.local)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, call.memory_length))
  if call.splits(call.memory_length):
    weights = mtf.cast(mtf.softmax(b, call.memory_length), values.dtype)
  else:
    weights = kernels.softmax(b, call.memory_length, values.dtype)
  return dropout.average(call, weights, values)
