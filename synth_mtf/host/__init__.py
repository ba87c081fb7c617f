"""What is known about the host: TensorFlow, Mesh-TensorFlow, T5 and gin.

Here lives what makes the host importable, how its gin files are read, the model
that they describe, and what its errors mean to a person. Nothing here knows
what a checkpoint, a run or a command is.
"""
