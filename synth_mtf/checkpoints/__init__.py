"""Checkpoints: reading and writing them, and what a model can take from one.

Here lives the one comparison of a model with a checkpoint, and what rests on
it: warm start, conversion of one variant into another, and what is said about a
checkpoint that does not fit or is damaged. When a run asks for this is the
business of `run`.
"""
