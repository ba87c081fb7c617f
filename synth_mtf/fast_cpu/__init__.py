"""What `gin/common/fast_cpu.gin` puts in the place of parts of the host.

Each part computes what the host's computes, from the same variables, and asks
for less of a processor without a matrix unit.
"""

from synth_mtf.fast_cpu.embedding import EmbeddingByIndex
from synth_mtf.fast_cpu.feed_forward import DenseReluDense as FeedForward

__all__ = ['EmbeddingByIndex', 'FeedForward']
