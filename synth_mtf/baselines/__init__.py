"""Layers that the paper compares Synthesizers with.

Lightweight and dynamic convolutions are the host's own layers
(`gin/variants/lightconv.gin`, `dyconv.gin`).
"""

from synth_mtf.baselines.linformer import Linformer

__all__ = ['Linformer']
