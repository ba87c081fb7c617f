"""Everything that this package adds to a run of T5's main."""
