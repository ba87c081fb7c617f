"""Names models for tables, by the paper's names where they exist."""

import collections
from collections.abc import Iterable

from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.host import model as models
from synth_mtf.layer.base import AttentionLayer
from synth_mtf.layer.enc_dec_attention import SyntheticEncDecAttention
from synth_mtf.layer.stacks import MODES, replaced
from synth_mtf.layer.synthetic import SyntheticLayer
from synth_mtf.results.kinds import Mixture, ModelKind

# The paper's names for the host's classes.
_NAMES = {
  'SelfAttention': 'T5',
  'LightweightConv1DLocalAttn': 'LightConv',
  'DynamicConv1DLocalAttn': 'DyConv',
}
# The label names any other class in their places, and our cross-attention.
_USUAL = transformer.LayerStack, transformer_layers.DenseReluDense


def label_of(layer: transformer.TransformerLayer) -> str:
  """Returns the name of one of our layers or of the host's."""
  if isinstance(layer, AttentionLayer):
    return layer.label
  if isinstance(layer, transformer_layers.Synthesizer):
    return f'mtf {layer.synthesize_mode}'
  name = type(getattr(layer, 'conv_local_attn_layer', layer)).__name__
  return _NAMES.get(name, name)


def kind(transformer_: models.Transformer) -> ModelKind:
  """Returns the kind of a model."""
  first = getattr(transformer_, 'encoder', transformer_)
  feed_forward, cross, self_attention = [], [], []
  for _, layer in models.layers(transformer_):
    if hasattr(layer, 'hidden_size'):
      feed_forward.append(layer)
    elif isinstance(layer, transformer_layers.EncDecAttention):
      cross.append(layer)
    else:
      self_attention.append(layer)
  unusual = [
    label_of(layer)
    for layer in (first.layer_stack, *feed_forward)
    if not isinstance(layer, _USUAL)
  ]
  for layer in cross:
    if isinstance(layer, SyntheticEncDecAttention):
      unusual.append(layer.label)
  _, first_layer = next(models.layers(transformer_))
  with_heads = [x for x in self_attention if hasattr(x, 'num_heads')]
  d_ff = _distinct(x.hidden_size for x in feed_forward)
  return ModelKind(
    functions=_distinct(map(_functions, self_attention)),
    mixing=_distinct(map(_mixing, self_attention)),
    size=(
      f'{len(self_attention)} blocks, d_model {first.model_dim.size}, '
      f'd_ff {d_ff}'
    ),
    stack=_distinct([_stack(transformer_), *unusual]),
    heads=_distinct(f'{x.num_heads} x {x.key_value_size}' for x in with_heads),
    positions=_positions(first, self_attention),
    label=_distinct([label_of(first_layer), *unusual]),
  )


def mixtures(transformer_: models.Transformer) -> list[Mixture]:
  """Returns our layers that mix functions, in the order of the model."""
  found = []
  counts: collections.Counter[str] = collections.Counter()
  for scope, layer in models.layers(transformer_):
    is_cross = isinstance(layer, transformer_layers.EncDecAttention)
    stack = 'cross' if is_cross else scope.partition('/')[0]
    if isinstance(layer, transformer_layers.SelfAttention):
      counts[stack] += 1
    if isinstance(layer, SyntheticLayer):
      letters = [function.letter for function in layer.synthesizers]
      found.append(Mixture(scope, stack, counts[stack], letters))
  return found


def _stack(transformer_: models.Transformer) -> str:
  if not isinstance(transformer_, transformer.Unitransformer):
    return 'encoder-decoder'
  return 'language model' if transformer_.autoregressive else 'encoder'


def _positions(
  stack: transformer.Unitransformer,
  self_attention: Iterable[transformer.TransformerLayer],
) -> str:
  if stack.positional_embedding:
    return 'learned'
  for layer in self_attention:
    if getattr(layer, 'relative_attention_type', None):
      return 'relative'
  return 'others'


def _functions(layer: transformer.TransformerLayer) -> str:
  """Returns the letters of self-attention's functions, or its label."""
  layer = _ours(layer)
  if isinstance(layer, SyntheticLayer) and layer.normalize is not None:
    return layer.letters
  return label_of(layer).replace('T5', 'V')


def _mixing(layer: transformer.TransformerLayer) -> str:
  """Returns how the functions of self-attention are mixed."""
  layer = _ours(layer)
  if not isinstance(layer, SyntheticLayer) or layer.normalize is None:
    return ''
  if len(layer.synthesizers) == 1:
    return ''
  return 'sum' if layer.mixing == 'sum' else 'alpha'


def _ours(layer: transformer.TransformerLayer) -> transformer.TransformerLayer:
  """Returns our layer in the place of mesh_tensorflow's own Synthesizer."""
  if getattr(layer, 'synthesize_mode', '') in MODES:
    return replaced(layer)
  return layer


def _distinct(words: Iterable[object]) -> str:
  """Joins the distinct words."""
  return ', '.join(dict.fromkeys(filter(None, map(str, words))))
