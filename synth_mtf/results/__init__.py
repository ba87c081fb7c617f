"""Reading the results of runs, and arranging them in tables."""
