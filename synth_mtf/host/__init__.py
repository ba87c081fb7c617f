"""Interface to the host: TensorFlow, Mesh-TensorFlow, T5 and gin."""
