"""Baselines of the paper, and a feed-forward layer with a convolution.

Lightweight and dynamic convolutions are the host's own layers
(`gin/variants/lightconv.gin`, `dyconv.gin`).
"""

from synth_mtf.baselines.conv_relu_dense import ConvReluDense
from synth_mtf.baselines.linformer import Linformer

__all__ = ['ConvReluDense', 'Linformer']
