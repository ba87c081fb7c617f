"""Attention of trained models: computed, stored in an `.npz`, and plotted."""
