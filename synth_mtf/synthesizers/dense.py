"""Dense: each token projects itself to its own row of the alignment."""

import dataclasses

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.errors import ConfigurationError
from synth_mtf.synthesizers.local import Local, relu_layer


@gin.configurable(module='synth_mtf')
@dataclasses.dataclass(eq=False)
class Dense(Local):
  """D, S(x_i) = W2 ReLU(W1 x_i) (eq. 1 and 2).

  W1, [d_model, heads, d_kv], maps to d_kv per head; W2, [heads, d_kv,
  memory_length], to N columns. We read W1 as d x d for all heads together, like
  T5's q, which gives Table 1's d^2 + d N parameters; eq. 2 has a d x d W1 per
  head.

  Args:
    shared_query: W1 is the layer's query projection, S(x_i) = W2 ReLU(Q(x_i)).
      With `shared_heads`, this is mesh_tensorflow's D.

  The other arguments are those of `Local`.

  Raises:
    ConfigurationError: if `shared_query` is combined with a `key_value_size` or
      a bias.
  """

  shared_query: bool = False

  letter = 'D'

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.shared_query and (self.use_bias or self.key_value_size):
      raise ConfigurationError(
        'Dense.shared_query: queries have the size of the layer and no bias; '
        'remove Dense.key_value_size and Dense.use_bias'
      )

  def hidden(self, call: LayerCall) -> mtf.Tensor:
    if self.shared_query:
      return mtf.relu(call.queries)
    return relu_layer(call, self.d_kv(call), self.use_bias)
