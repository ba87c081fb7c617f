"""Names models for tables, by the paper's names where they exist."""

from collections.abc import Iterable
from typing import NamedTuple

from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.host import model
from synth_mtf.layer.base import AttentionLayer
from synth_mtf.layer.enc_dec_attention import SyntheticEncDecAttention
from synth_mtf.layer.stacks import MODES, replaced
from synth_mtf.layer.synthetic import SyntheticLayer

# The paper's names for the host's classes.
_NAMES = {
  'SelfAttention': 'T5',
  'LightweightConv1DLocalAttn': 'LightConv',
  'DynamicConv1DLocalAttn': 'DyConv',
}
# The label names any other class in their places, and our cross-attention.
_USUAL = transformer.LayerStack, transformer_layers.DenseReluDense


class Kind(NamedTuple):
  """A model's name, and what it shares with its published row.

  The label names the self-attention in the encoder's first block, such as
  "Syn (R+V)", "T5 (V)" or "LightConv", and what is not T5's, as in
  "T5, cross-attention R".
  """

  functions: str  # letters, as in "R+V"; T5 is "V"
  mixing: str  # 'alpha' if weights are learned, 'sum', or '' for one function
  size: str  # blocks, d_model and d_ff
  stack: str  # 'encoder-decoder', ..., and the classes that replace T5's
  heads: str  # heads x d_kv of self-attention, as in "8 x 128"
  positions: str  # 'learned', 'relative' (T5's bias) or 'others'
  label: str = ''


def label_of(layer: transformer.TransformerLayer) -> str:
  """Returns the name of one of our layers or of the host's."""
  if isinstance(layer, AttentionLayer):
    return layer.label
  if isinstance(layer, transformer_layers.Synthesizer):
    return f'mtf {layer.synthesize_mode}'
  name = type(getattr(layer, 'conv_local_attn_layer', layer)).__name__
  return _NAMES.get(name, name)


def kind() -> Kind:
  """Returns the kind of the model that gin configures."""
  # Any vocabulary will do: no layer is called.
  built = model.make_transformer(128)
  first = getattr(built, 'encoder', built)
  layers = [layer for _, layer in model.layers(built)]
  feed_forward = [x for x in layers if hasattr(x, 'hidden_size')]
  cross = [
    x for x in layers if isinstance(x, transformer_layers.EncDecAttention)
  ]
  self_attention = [x for x in layers if x not in [*feed_forward, *cross]]
  mixed = [_functions(layer) for layer in self_attention]
  stack = 'language model' if first.autoregressive else 'encoder'
  if first is not built:
    stack = 'encoder-decoder'
  others = [
    label_of(x)
    for x in (first.layer_stack, *feed_forward)
    if not isinstance(x, _USUAL)
  ]
  others += [x.label for x in cross if isinstance(x, SyntheticEncDecAttention)]
  heads = [x for x in self_attention if hasattr(x, 'num_heads')]
  biases = [getattr(x, 'relative_attention_type', None) for x in self_attention]
  positions = 'relative' if any(biases) else 'others'
  return Kind(
    functions=_each(functions for functions, _ in mixed),
    mixing=_each(mixing for _, mixing in mixed),
    size=f'{len(self_attention)} blocks, d_model {first.model_dim.size}, '
    f'd_ff {_each(x.hidden_size for x in feed_forward)}',
    stack=_each([stack, *others]),
    heads=_each(f'{x.num_heads} x {x.key_value_size}' for x in heads),
    positions='learned' if first.positional_embedding else positions,
    label=_each([label_of(layers[0]), *others]),
  )


def _functions(layer: transformer.TransformerLayer) -> tuple[str, str]:
  """Returns the functions of self-attention, and how they are mixed."""
  if getattr(layer, 'synthesize_mode', '') in MODES:
    layer = replaced(layer)
  if not isinstance(layer, SyntheticLayer) or layer.normalize is None:
    return label_of(layer).replace('T5', 'V'), ''
  mixing = 'sum' if layer.mixing == 'sum' else 'alpha'
  return layer.letters, mixing if len(layer.synthesizers) > 1 else ''


def _each(words: Iterable[object]) -> str:
  """Joins the distinct words."""
  return ', '.join(dict.fromkeys(filter(None, map(str, words))))
