"""The host's feed-forward layer, faster where it has one token or padding."""

from typing import Optional

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.cpu.products import faster
from synth_mtf.cpu.token_rows import mask


@gin.configurable('FeedForward', module='synth_mtf')
class DenseReluDense(transformer_layers.DenseReluDense):
  """The host's DenseReluDense, whose products are ours (`cpu.products`).

      Y = f(X W_i) W_o

  Padding is not multiplied. W_i and W_o are read by all cores, which is most of
  what a step of decoding one example does. For `synth_mtf.feed_forward.layer`.
  The host names variables after the class, so this one is named after its own.
  Arguments are the host's.
  """

  def call(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    losses: Optional[list[mtf.Tensor]] = None,
  ) -> mtf.Tensor:
    """Calls the layer on [batch..., d_model], or all tokens' of that."""
    call = super().call
    masks = mask(context, context.sequence_id, context.length_dim)
    return faster(lambda: call(context, x, losses), x.mesh, masks)
