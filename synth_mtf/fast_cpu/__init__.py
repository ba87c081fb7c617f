"""What `gin/common/fast_cpu.gin` puts in the place of parts of the host.

Each part computes what the host's computes, from the same variables, and asks
for less of a processor without a matrix unit.
"""

from synth_mtf.fast_cpu.embedding import EmbeddingByIndex

__all__ = ['EmbeddingByIndex']
