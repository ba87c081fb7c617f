"""Rows of files, and what task files say about them, without TensorFlow."""
