"""One page, self-contained, about any number of runs."""
