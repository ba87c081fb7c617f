"""Faster implementations for CPUs.

The attention layers use tiled attention and products that skip padding;
gin/common/fast_cpu.gin replaces T5's embedding and feed-forward layer.
"""
