"""The attention layers, which mix logits and average values with softmax(B).

`SyntheticAttention` and the baselines share settings and their checks, mixtures
and the weighted sum. Synthesizing functions are in `synthesizers`, custom
Mesh-TensorFlow operations in `core`.
"""
