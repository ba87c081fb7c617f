"""Makes the layer for each slot of T5's stacks.

`gin/layers/stacks.gin` lists the slots, so that you can bind the layer of one
slot without naming the layers of the others.
"""

from typing import Callable, Optional

import gin
from mesh_tensorflow.transformer import transformer, transformer_layers

MakeLayer = Callable[[], transformer.TransformerLayer]


@gin.configurable(module='synth_mtf')
def self_attention(
  layer: MakeLayer = transformer_layers.SelfAttention,
) -> transformer.TransformerLayer:
  """Makes the self-attention layer, by default T5's."""
  return layer()


@gin.configurable(module='synth_mtf')
def cross_attention(
  layer: Optional[MakeLayer] = None,
  otherwise: MakeLayer = transformer_layers.EncDecAttention,
) -> transformer.TransformerLayer:
  """Makes the layer that attends to the encoder's output.

  Args:
    layer: the class that a variant binds, if any.
    otherwise: the class to use without one: T5's own, or an equivalent.
  """
  return (layer or otherwise)()


@gin.configurable(module='synth_mtf')
def feed_forward(
  layer: MakeLayer = transformer_layers.DenseReluDense,
) -> transformer.TransformerLayer:
  """Makes the feed-forward layer, by default T5's."""
  return layer()
