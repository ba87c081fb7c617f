"""What synthesizing functions and layers are made of.

Here lives what knows one call of an attention layer and nothing of which
synthesizing function or layer it is: the call itself with its dimensions and
projections, logits as sums and inner products, positions and how tables are
read there, visibility and packing, neighbours, and the kernels, which are all
operations below Mesh-TensorFlow's own. No equation of the paper is here,
nothing that gin configures and no file.
"""
