"""Building blocks of synthesizing functions and layers.

These modules describe one call of an attention layer: its dimensions,
projections, logits, positions, visibility, neighbouring tokens, and custom
Mesh-TensorFlow operations. They depend on no particular function or layer,
implement no equation of the paper, are not configurable in gin, and read no
files.
"""
