"""Names models for tables, by the paper's names where they exist."""

from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.host import model
from synth_mtf.layer.base import AttentionLayer
from synth_mtf.layer.enc_dec_attention import SyntheticEncDecAttention

_CONVOLUTIONS = {
  'LightweightConv1DLocalAttn': 'LightConv',
  'DynamicConv1DLocalAttn': 'DyConv',
}


def label() -> str:
  """Returns the name of the model that gin configures.

  It names the self-attention in the encoder's first block, such as "Syn (R+V)",
  "T5 (V)" or "LightConv", and cross-attention if that is ours:
  "T5, cross-attention R".
  """
  # Any vocabulary will do: no layer is called.
  layers = [layer for _, layer in model.layers(model.make_transformer(128))]
  cross = [x for x in layers if isinstance(x, SyntheticEncDecAttention)]
  return ', '.join(filter(None, map(label_of, [layers[0], *cross[:1]])))


def label_of(layer: transformer.TransformerLayer) -> str:
  """Returns the name of one of our layers or of the host's."""
  if isinstance(layer, AttentionLayer):
    return layer.label
  if isinstance(layer, transformer_layers.LocalConvAttnBlock):
    return _CONVOLUTIONS[type(layer.conv_local_attn_layer).__name__]
  if isinstance(layer, transformer_layers.Synthesizer):
    return f'mtf {layer.synthesize_mode}'
  if type(layer) is transformer_layers.SelfAttention:
    return 'T5'
  return type(layer).__name__
