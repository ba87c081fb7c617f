"""Figures of runs: one file a figure, and one for the style of all figures.

Each returns a matplotlib `Figure`; `style.write` makes PNG and SVG of it. They
need matplotlib, which is the extra `[plot]`.
"""
