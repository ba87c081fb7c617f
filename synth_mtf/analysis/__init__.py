"""What is measured of a model.

Here lives what a model costs and how it is called in tables. How a run is done
and what it writes is the business of `run`.
"""
