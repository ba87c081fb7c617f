"""Runs Mesh-TensorFlow's program on any device that JAX finds."""
