"""Figures of results and of attention, in one style."""
