"""SyntheticEncDecAttention, and an equivalent of T5's EncDecAttention."""

from typing import Any

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core.gradients import link_gradient
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.memory import Memory, encoder_output
from synth_mtf.core.visibility import Visibility, encoder_visibility
from synth_mtf.errors import ConfigurationError
from synth_mtf.layer.synthetic import SyntheticLayer
from synth_mtf.synthesizers.base import (
  CROSS_ATTENTION_SCOPE,
  SynthesizingFunction,
)


@gin.configurable(module='synth_mtf')
class SyntheticEncDecAttention(
  SyntheticLayer, transformer_layers.EncDecAttention
):
  """Multi-head cross-attention with a synthesized alignment.

      B = sum_i alpha_i S_i(X) + relative position bias
      Y = softmax(B) G(M),  M the encoder's output

  The functions are those of self-attention, over [length, memory_length]: a
  table has a row per target position and a column per input position, a local
  function makes a row from the decoder's token, and the dot product is
  Q(X) K(M)^T. With the default `[DotProduct]` the layer computes the
  same as EncDecAttention, from the same variables. There is no causal mask: the
  whole input is visible.

  Arguments are those of `SyntheticLayer` and of EncDecAttention, whose gin
  bindings apply, as do SelfAttention's except for the relative position bias.
  The functions are made in the decoder's gin scope `cross`, so that

      decoder/cross/FactorizedRandom.rank = 16

  applies to them alone.
  """

  relative_attention_types = (None, 'bias', 'bias_shared')

  @property
  def label(self) -> str:
    return f'cross-attention {self.letters}'

  def make_functions(self, makers: Any) -> list[SynthesizingFunction]:
    with gin.config_scope(CROSS_ATTENTION_SCOPE):
      return super().make_functions(makers)

  def memory_length(self, context: transformer.Context) -> mtf.Dimension:
    """Returns the dimension of the encoder's tokens.

    Raises:
      ConfigurationError: if there is no encoder, or its width differs.
    """
    encoded, d_model = context.encoder_output, context.model.model_dim
    if encoded is None:
      raise ConfigurationError(
        'SyntheticEncDecAttention attends to the output of an encoder, and '
        'this model has none; remove it from '
        'transformer.make_layer_stack.layers'
      )
    if encoded.shape.dims[-1] != d_model:
      raise ConfigurationError(
        'SyntheticEncDecAttention: the encoder has d_model = '
        f'{encoded.shape.dims[-1].size}, the decoder {d_model.size}; set '
        'encoder/Unitransformer.d_model to that of the decoder'
      )
    return context.encoder_length_dim

  def memory(self, context: transformer.Context, _x: mtf.Tensor) -> Memory:
    return encoder_output(context)

  def memory_sequence_id(
    self, context: transformer.Context
  ) -> mtf.Tensor | None:
    return context.encoder_sequence_id

  def attend(self, call: LayerCall) -> mtf.Tensor:
    """Adds a zero gradient for X, which the functions may not read."""
    y = super().attend(call)
    return link_gradient(y, call.x) if call.context.train else y

  def visibility(self, call: LayerCall) -> Visibility:
    return encoder_visibility(call, self.is_packed(call.context))

  def relative_position_bias(self, call: LayerCall) -> list[mtf.Tensor]:
    if self.relative_attention_type is None:
      return []
    bias = transformer_layers.enc_dec_attention_bias(
      self, call.context, call.heads
    )
    return [mtf.cast(bias, call.logits_dtype)]


@gin.configurable('DotProductEncDecAttention', module='synth_mtf')
class EncDecAttention(SyntheticEncDecAttention):
  """The host's EncDecAttention, computed by DotProduct.

  Bind it to `synth_mtf.cross_attention.otherwise`. It shares the host's class
  name because the host names variables after it. Arguments are the host's.
  """

  label = ''  # the model is the same as with the host's layer
