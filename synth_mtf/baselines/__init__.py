"""Baselines of the paper, and a feed-forward layer with a convolution."""
