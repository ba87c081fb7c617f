"""Checkpoints: reading, writing, comparing and converting them; warm start."""
