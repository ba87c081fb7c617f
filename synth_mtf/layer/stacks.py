"""Puts layers into T5's stacks.

`gin/layers/stacks.gin` lists the slots of a block, so that you can bind the
layer of one slot without naming the layers of the others. `ReplacingLayerStack`
puts SyntheticAttention in the place of mesh_tensorflow's own Synthesizer.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.errors import ConfigurationError
from synth_mtf.layer.attention import SyntheticAttention
from synth_mtf.layer.refusals import check_option
from synth_mtf.synthesizers.base import SynthesizingFunction
from synth_mtf.synthesizers.dense import Dense
from synth_mtf.synthesizers.dot_product import DotProduct
from synth_mtf.synthesizers.random import Random

MakeLayer = Callable[[], transformer.TransformerLayer]

# The functions and the mixing of each `synthesize_mode`.
MODES: Mapping[str, tuple[Sequence[type[SynthesizingFunction]], str]] = {
  'random': ([Random], 'sum'),
  'random_plus': ([Random, DotProduct], 'sum'),
  'random_plus_alpha': ([Random, DotProduct], 'layer_sigmoid'),
  'dense_minus': ([Dense], 'sum'),
  'dense_plus': ([Dense, DotProduct], 'sum'),
  'dense_plus_alpha': ([Dense, DotProduct], 'layer_sigmoid'),
}


@gin.configurable(module='synth_mtf')
def self_attention(
  layer: MakeLayer = transformer_layers.SelfAttention,
) -> transformer.TransformerLayer:
  """Makes the self-attention layer, by default T5's."""
  return _made('self_attention', layer)


@gin.configurable(module='synth_mtf')
def cross_attention(
  layer: MakeLayer | None = None,
  otherwise: MakeLayer = transformer_layers.EncDecAttention,
) -> transformer.TransformerLayer:
  """Makes the layer that attends to the encoder's output.

  Args:
    layer: the class that a variant binds, if any.
    otherwise: the class to use without one: T5's own, or an equivalent.
  """
  made = _made('cross_attention', layer or otherwise)
  is_attention = isinstance(made, transformer_layers.SelfAttention)
  reads_encoder = isinstance(made, transformer_layers.EncDecAttention)
  if is_attention and not reads_encoder:
    raise ConfigurationError(
      f'synth_mtf.cross_attention.layer makes {type(made).__name__}, which '
      "attends to the decoder's own input, so that no layer would read the "
      "encoder's output: expected a class such as "
      '@synth_mtf.SyntheticEncDecAttention (variants/cross_*.gin)'
    )
  return made


@gin.configurable(module='synth_mtf')
def feed_forward(
  layer: MakeLayer = transformer_layers.DenseReluDense,
) -> transformer.TransformerLayer:
  """Makes the feed-forward layer, by default T5's."""
  return _made('feed_forward', layer)


def _made(owner: str, make: Any) -> transformer.TransformerLayer:
  """Returns a new layer, or says which binding makes something else."""
  layer = make() if callable(make) else None
  if not isinstance(layer, transformer.TransformerLayer):
    raise ConfigurationError(
      f'synth_mtf.{owner}.layer = {make!r}: expected a class of layers, '
      '@name without ()'
    )
  return layer


@gin.configurable(module='synth_mtf')
class ReplacingLayerStack(transformer.LayerStack):
  """T5's stack, with our layer in the place of each Synthesizer.

  Our layer has the settings of the one it replaces; with `Random` and `Dense`
  as in `gin/layers/as_original.gin`, also its parameters. Arguments are those
  of `transformer.LayerStack`.

  Raises:
    ConfigurationError: if a mode is unknown, or "factorized".
  """

  def __init__(
    self, layers: Sequence[transformer.TransformerLayer], **kwargs: Any
  ) -> None:
    super().__init__([replaced(layer) for layer in layers], **kwargs)


def replaced(layer: Any) -> transformer.TransformerLayer:
  """Returns our layer for a Synthesizer, and any other layer itself."""
  if not isinstance(layer, transformer_layers.Synthesizer):
    return layer
  mode = layer.synthesize_mode
  if mode == 'factorized':
    raise ConfigurationError(
      "Synthesizer.synthesize_mode = 'factorized' gives all queries the same "
      'logits, and our layer has no such mode. The FR of the paper is '
      'variants/factorized_random.gin'
    )
  check_option('Synthesizer', 'synthesize_mode', mode, MODES)
  functions, mixing = MODES[mode]
  layer.z_loss_coeff = None  # the host's Synthesizer ignores it
  ours = SyntheticAttention(functions, mixing, **settings_of(layer))
  ours.set_name(layer.name)
  return ours


def settings_of(layer: transformer_layers.SelfAttention) -> dict[str, Any]:
  """Returns a layer's arguments of SelfAttention."""
  names = inspect.signature(transformer_layers.SelfAttention).parameters
  return {name: getattr(layer, name) for name in names}
