"""What is only for a CPU: attention by tiles, and products without padding.

Also the parts of T5 that gin/common/fast_cpu.gin puts in the host's place. They
compute what the host's compute, from the same variables.
"""

from synth_mtf.cpu.adafactor import AdafactorOptimizer as Adafactor
from synth_mtf.cpu.embedding import EmbeddingByIndex
from synth_mtf.cpu.feed_forward import DenseReluDense as FeedForward

__all__ = ['Adafactor', 'EmbeddingByIndex', 'FeedForward']
