"""Dense: each token projects itself to its own row of the alignment."""

import gin
import mesh_tensorflow as mtf

from synth_mtf.synthesizers.base import Site
from synth_mtf.synthesizers.local import Local, relu_layer


@gin.configurable(module='synth_mtf')
class Dense(Local):
  """D, S(x_i) = W2 ReLU(W1 x_i) (eq. 1 and 2, section 3.1.1).

  W1, [d_model, heads, d_kv], maps to d_kv in each head; W2, [heads, d_kv,
  memory_length], to N columns.
  """

  def hidden(self, site: Site) -> mtf.Tensor:
    """ReLU(W1 x_i)."""
    return relu_layer(site, self.d_kv(site))
