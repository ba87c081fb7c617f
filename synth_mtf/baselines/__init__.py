"""Baselines of the paper, and a feed-forward layer with a convolution.

Lightweight and dynamic convolutions are the host's own layers
(`gin/variants/lightconv.gin`, `dyconv.gin`).
"""
