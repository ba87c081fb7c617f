"""What we know about the host: TensorFlow, Mesh-TensorFlow, T5 and gin.

Changes to the host (`patches`), its gin files and bindings, the model that they
describe, and clear messages for its errors. Nothing here knows what a
checkpoint, a run or a command is.
"""
