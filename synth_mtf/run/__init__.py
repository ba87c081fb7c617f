"""A run of T5's main, and what surrounds it.

How a process starts, what is checked before the first step, progress,
checkpoints, signals, repeatable training, and the log.
"""
