"""What stands in the place of parts of the host, off a TPU.

Each part computes what the host's computes, from the same variables, and asks
for less of a processor without a matrix unit.
"""

from synth_mtf.fast_cpu.adafactor import AdafactorOptimizer as Adafactor
from synth_mtf.fast_cpu.embedding import EmbeddingByIndex
from synth_mtf.fast_cpu.feed_forward import DenseReluDense as FeedForward

__all__ = ['Adafactor', 'EmbeddingByIndex', 'FeedForward']
