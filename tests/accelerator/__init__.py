"""Proofs that a TPU would run our layers, made without one."""
