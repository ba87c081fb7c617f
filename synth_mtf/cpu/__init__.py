"""What is only for a CPU, and how the layers and gin take it.

The layers ask for attention by tiles and for products without padding. The
parts of T5 that gin/common/fast_cpu.gin replaces compute what the host's
compute, from the same variables.
"""

from synth_mtf.cpu.attention import attend_each, attend_shared, can_attend
from synth_mtf.cpu.embedding import EmbeddingByIndex
from synth_mtf.cpu.feed_forward import DenseReluDense as FeedForward
from synth_mtf.cpu.padding import einsum, mask

__all__ = [
  'EmbeddingByIndex',
  'FeedForward',
  'attend_each',
  'attend_shared',
  'can_attend',
  'einsum',
  'mask',
]
