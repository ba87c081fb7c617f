"""Gated Dense: a gated linear unit as Dense's hidden layer."""

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.synthesizers.local import Local, project

# 1 / E[sigmoid(z)^2] for z of unit variance.
_GATE_GAIN = 3.4


@gin.configurable(module='synth_mtf')
class GatedDense(Local):
  """GLU, S(x_i) = W2 ((W1 x_i) * sigmoid(Wg x_i)) (version 1, section 6.2).

  W1 and the gate's Wg are [d_model, heads, d_kv], W2 [heads, d_kv,
  memory_length]. Version 1 has one bullet for it; the shapes, and that the
  gate replaces the ReLU, are our interpretation.
  """

  letter = 'GLU'

  def hidden(self, call: LayerCall) -> mtf.Tensor:
    dims = [*call.heads, self.d_kv(call)]
    linear = project(
      call, call.x, 'W1', dims, gain=_GATE_GAIN, use_bias=self.use_bias
    )
    gate = project(call, call.x, 'Wg', dims, use_bias=self.use_bias)
    return linear * mtf.sigmoid(gate)
