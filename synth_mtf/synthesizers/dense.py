"""Dense: each token projects itself to its own row of the alignment."""

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.synthesizers.local import Local, relu_layer


@gin.configurable(module='synth_mtf')
class Dense(Local):
  """D, S(x_i) = W2 ReLU(W1 x_i) (eq. 1 and 2).

  W1, [d_model, heads, d_kv], maps to d_kv per head; W2, [heads, d_kv,
  memory_length], to N columns. We read W1 as d x d for all heads together, like
  T5's q, which gives Table 1's d^2 + d N parameters; eq. 2 has a d x d W1 per
  head.
  """

  letter = 'D'

  def hidden(self, call: LayerCall) -> mtf.Tensor:
    return relu_layer(call, self.d_kv(call))
