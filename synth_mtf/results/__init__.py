"""Reading the results of runs, and showing them in tables and figures."""
