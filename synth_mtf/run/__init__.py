"""What surrounds a run of T5's main.

Here lives how a process starts, what is checked before the first step, how a
run repeats, what it shows, and T5's main itself. What a run computes is the
host's and the layer's; what is measured of its results is in `analysis`.
"""
