"""Attention of trained models: computed, and stored in an `.npz`."""
