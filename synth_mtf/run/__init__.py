"""Everything that this package adds to a run of T5's main.

Startup, checks before the first step, progress, checkpoints, signals,
reproducible training, and the log.
"""
