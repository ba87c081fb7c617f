"""What runs have measured, and tables and figures of it."""
