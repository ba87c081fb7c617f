"""The weighted sum where logits differ from example to example.

    Y = softmax(B + bias) (keep * V)

with the bias -1e9 at what is hidden, as in the host, and keep the dropout of
each key; dropout that queries do not share applies to the weights themselves.
All that has no batch dimension is summed first and added once.
"""

from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, add_to_keys, plus
from synth_mtf.core.visibility import Visibility
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
  b = _visible_logits(call, logits, visibility)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, call.memory_length))
  if dropout.per_key(call):
    y = _softmax_product(call, b, dropout.of_values(values, call))
  else:
    weights = mtf.cast(_softmax(call, b), values.dtype)
    y = product(call, dropout.of_weights(weights), values)
  return at(visibility.queries, y)


def _visible_logits(
  call: LayerCall, logits: Logits, visibility: Visibility
) -> mtf.Tensor:
  """B + bias, [batch..., heads, length, memory_length]."""
  pairs, keys = visibility.pairs, visibility.keys
  left_over = None
  if keys is not None:
    logits, left_over = add_to_keys(call, logits, _hide(keys))
  shared = plus(logits.shared, None if pairs is None else _hide(pairs))
  b = plus(plus(logits.multiplied_out(call), shared), left_over)
  return arrange(b, call.local)


def _hide(visible: mtf.Tensor) -> mtf.Tensor:
  """The bias that hides what is False (or 0)."""
  return (1.0 - mtf.cast(visible, tf.float32)) * _HIDDEN


def _softmax(call: LayerCall, b: mtf.Tensor) -> mtf.Tensor:
  """Softmax over memory_length; one operation where the mesh allows it."""
  if call.splits(call.memory_length):
    return mtf.softmax(b, call.memory_length)
  return kernels.softmax(b, call.memory_length)


def _softmax_product(
  call: LayerCall, b: mtf.Tensor, values: mtf.Tensor
) -> mtf.Tensor:
  """softmax(B) V; one kernel where the mesh allows it."""
  if any(call.splits(d) for d in (call.memory_length, call.kv_dim)):
    return product(call, _softmax(call, b), values)
  return kernels.softmax_product(
    b, values, call.memory_length, call.batch + call.length + call.heads
  )
