"""Faster implementations for CPUs.

The attention layers use tiled attention and products that skip padding;
gin/common/fast_cpu.gin replaces T5's embedding and feed-forward layer.
"""

from synth_mtf.cpu.attention import attend_each, attend_shared, can_attend
from synth_mtf.cpu.layers import DenseReluDense as FeedForward, EmbeddingByIndex
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
