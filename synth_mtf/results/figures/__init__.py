"""Figures of runs, and the style of all figures.

Each module draws one matplotlib `Figure`, which `style.write` writes as PNG and
SVG. Matplotlib is the extra `[plot]`.
"""
