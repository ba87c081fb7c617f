"""Interface to the host: TensorFlow, Mesh-TensorFlow, T5 and gin.

Patches to the host, its gin files and bindings, the model that they describe,
and clear messages for its errors. Nothing here depends on checkpoints, runs or
commands.
"""
