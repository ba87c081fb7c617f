"""Commands of `synth-mtf transformer` and others, built from a few words."""
