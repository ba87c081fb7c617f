"""Figures of runs and of attention: one file a figure, and one for the style.

Each returns a matplotlib `Figure`; `style.write` makes PNG and SVG of it. They
import matplotlib, which is the extra `[plot]`.
"""
