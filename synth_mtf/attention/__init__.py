"""What models attend to: recorded in their graph, and kept in an `.npz`."""
