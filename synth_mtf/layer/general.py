"""The weighted sum where logits differ from example to example.

    Y = softmax(B + bias) (keep * V)

with the bias -1e9 at what is hidden, as in the host, and keep the dropout of
each key; dropout that queries do not share applies to the weights themselves.
`cpu.attend` does it all where it can. Elsewhere there is one operation for
each step.
"""

from typing import Optional

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, add, total
from synth_mtf.core.visibility import Visibility
from synth_mtf.cpu.attend import attend, can_attend
from synth_mtf.layer.dropout import Dropout
from synth_mtf.layer.parts import UseLogZ, at, product

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
  logits = _visible(call, logits, visibility)
  if use_log_z is None and dropout.per_key(call) and can_attend(call, values):
    y = attend(call, logits.terms, visibility, dropout.of_values(values, call))
  else:
    y = _step_by_step(call, logits, values, dropout, use_log_z)
  return at(visibility.queries, y)


def _visible(call: LayerCall, logits: Logits, visibility: Visibility) -> Logits:
  """B + bias."""
  seen = [x for x in (visibility.pairs, visibility.keys) if x is not None]
  hide = [(1.0 - mtf.cast(x, call.logits_dtype)) * _HIDDEN for x in seen]
  return add(call, [*logits.terms, *map(mtf.stop_gradient, hide)])


def _step_by_step(
  call: LayerCall,
  logits: Logits,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ],
) -> mtf.Tensor:
  """Y by operations that any mesh can split, and a TPU's compiler join."""
  b = arrange(total(call, logits), call.local)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, call.memory_length))
  if call.splits(call.memory_length):
    weights = mtf.cast(mtf.softmax(b, call.memory_length), values.dtype)
  else:
    weights = kernels.softmax(b, call.memory_length, values.dtype)
  if dropout.per_key(call):
    return product(call, weights, dropout.of_values(values, call))
  return product(call, dropout.of_weights(weights), values)
