"""The host's feed-forward layer, faster where it has one token."""

from typing import Optional

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.single_rows import rows_in_pieces


@gin.configurable('FeedForward', module='synth_mtf')
class DenseReluDense(transformer_layers.DenseReluDense):
  """The host's DenseReluDense, whose weights are read by all cores.

      Y = f(X W_i) W_o

  A step of decoding one example does little else than to read them. For
  `synth_mtf.feed_forward.layer`. The host names variables after the class, so
  this one is named after the host's. Arguments are the host's.
  """

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: Optional[list[mtf.Tensor]] = None,
  ) -> mtf.Tensor:
    """Calls the layer on [batch..., d_model], or all tokens' of that."""
    call = super().call
    return rows_in_pieces(lambda: call(context, x, losses), x.mesh)
