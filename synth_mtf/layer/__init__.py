"""The attention layers: they mix logits and average values with softmax(B).

What `SyntheticAttention` and the baselines share is here: settings and their
checks, mixtures, and the weighted sum. Synthesizing functions are in
`synthesizers`, operations below Mesh-TensorFlow's own in `core.kernels`.
"""
