"""The layer: logits are mixed, and softmax(B) averages the values.

Here lives `SyntheticAttention`, and what it and the baselines share: a layer's
settings and refusals, the mixture, and the weighted sum with its two ways of
being computed. Which functions make the logits is not known here, nor how an
operation is carried out below Mesh-TensorFlow (`core.kernels`).
"""
