"""The weighted sum if all examples share their logits.

    E = exp(B - c), 0 where hidden
    Y = (E (keep * V)) / (E nonpad)

c is a center of each row of B, keep the dropout of each key, and nonpad marks
the tokens of each example. This equals masked softmax and dropout, because
values at padding are 0.
"""

from typing import Callable, Optional

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.context import recomputes_layers
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, multiplied_out, needed
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.layer.dropout import Dropout

# Called with log Z, [batch..., heads, length]; Z is the softmax's denominator.
UseLogZ = Callable[[mtf.Tensor], None]


def batch_shared_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ],
) -> mtf.Tensor:
  """softmax(B) G(X); see `weighted_sum.softmax_average`."""
  nonpad = visibility.keys
  values = dropout.drop_values(zero_hidden(values, nonpad), call)
  rows = mtf.Shape(call.batch + call.length + call.heads)

  def sums() -> tuple[mtf.Tensor, ...]:
    e, center = kernels.centered_exp(
      [multiplied_out(call, term) for term in logits.shared],
      mtf.Shape(call.shared),
      visibility.pairs,
    )
    y = kernels.shared_product(
      e,
      values,
      batch=call.batch,
      length=call.length,
      heads=call.heads,
      train=call.context.train,
    )
    if nonpad is None:
      total = mtf.reduce_sum(e, reduced_dim=call.memory_length)
    else:
      present = {*e.shape.dims, *nonpad.shape.dims}
      total = mtf.einsum(
        [e, mtf.cast(nonpad, e.dtype)],
        mtf.Shape([d for d in rows if d in present]),
      )
    return y, arrange(total, rows), center

  # What the host makes again cannot hold what is made again by itself.
  if call.context.train and not recomputes_layers(call.context):
    y, total, center = kernels.recompute_in_backward(
      sums, needed(logits.shared)
    )
  else:
    y, total, center = sums()
  if use_log_z:
    is_zero = mtf.cast(mtf.equal(total, 0.0), total.dtype)  # only padding
    use_log_z(mtf.log(total + is_zero) + center)
  return kernels.divide(y, zero_hidden(total, visibility.queries))
