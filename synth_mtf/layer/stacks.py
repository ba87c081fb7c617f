"""Which layers stand in the places of T5's stacks.

The lists of layers in `gin/layers/stacks.gin` name the places, so that what
stands in one is chosen without a word on the other.
"""

from typing import Callable, Optional

import gin
from mesh_tensorflow.transformer import transformer, transformer_layers

MakeLayer = Callable[[], transformer.TransformerLayer]


@gin.configurable(module='synth_mtf')
def self_attention(
  layer: MakeLayer = transformer_layers.SelfAttention,
) -> transformer.TransformerLayer:
  """Makes the layer in the place of self-attention.

  Args:
    layer: its class; T5's own where nothing else is said.
  """
  return layer()


@gin.configurable(module='synth_mtf')
def cross_attention(
  layer: Optional[MakeLayer] = None,
  otherwise: MakeLayer = transformer_layers.EncDecAttention,
) -> transformer.TransformerLayer:
  """Makes the layer in the place of attention over the encoder's output.

  Args:
    layer: its class, if a variant says one.
    otherwise: T5's own, or a class that computes the same.
  """
  return (layer or otherwise)()


@gin.configurable(module='synth_mtf')
def feed_forward(
  layer: MakeLayer = transformer_layers.DenseReluDense,
) -> transformer.TransformerLayer:
  """Makes the layer in the place of the feed-forward layer.

  Args:
    layer: its class; T5's own where nothing else is said.
  """
  return layer()
