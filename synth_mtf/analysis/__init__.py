"""What is measured about a model.

Here lives what a model costs and what it is called in tables. How a run is done
and what it writes is the business of `run`.
"""
