"""What synthesizing functions and layers are made of.

Here lives what knows about one call of an attention layer, but not which
synthesizing function or layer it is: the call itself with its dimensions and
projections, logits as sums and inner products, positions and how tables are
read there, visibility and packing, neighbours, and the kernels, that is, all
operations below Mesh-TensorFlow's own. There is no equation of the paper here,
nothing that gin configures, and no file is read.
"""
