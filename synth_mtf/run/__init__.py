"""What surrounds a run of T5's main.

Here lives how a process starts, what is checked before the first step, how a
run repeats, what it shows, and T5's main itself. What a run computes is up to
the host and the layer; what is measured about a model is in `results`.
"""
