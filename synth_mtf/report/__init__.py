"""The page of `synth-mtf report`: one HTML file about any number of runs."""
