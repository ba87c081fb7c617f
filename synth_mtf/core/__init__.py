"""Building blocks of synthesizing functions and layers.

These modules know one call of an attention layer, but no function and no layer:
its dimensions and projections, logits as sums, positions and the tables read
there, visibility, neighbours, and the kernels below Mesh-TensorFlow's own
operations. None of them has an equation of the paper, is configured by gin or
reads a file.
"""
