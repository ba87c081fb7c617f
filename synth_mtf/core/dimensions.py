"""The order of named dimensions, how a mesh splits them, and its devices."""

from collections.abc import Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer


def arrange(x: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
  """Gives x exactly these dimensions, in this order."""
  if set(x.shape.dims) != set(shape.dims):
    x = mtf.broadcast(x, shape)
  return mtf.transpose(x, shape)


def put_first(dims: Sequence[mtf.Dimension], x: mtf.Tensor) -> mtf.Tensor:
  """Puts these dimensions of x first."""
  others = [d for d in x.shape.dims if d not in dims]
  return mtf.transpose(x, mtf.Shape([*dims, *others]))


def parts(dim: mtf.Dimension, model: transformer.Unitransformer) -> int:
  """Into how many parts the mesh of a model splits a dimension."""
  if not (model.layout and model.mesh_shape):
    return 1
  return mtf.tensor_dim_to_mesh_dim_size(model.layout, model.mesh_shape, dim)


def is_tpu(mesh: mtf.Mesh) -> bool:
  """Whether a mesh is one of TPU cores: the host places their variables."""
  return callable(mesh.variable_placer_fn)  # elsewhere the name of a device


def on_cpu(mesh_impl: mtf.MeshImpl) -> bool:
  """Whether all devices of a mesh are CPUs.

  Where a mesh names no device, '', TensorFlow takes a GPU if there is one.
  """
  kinds = {
    # The host's own short form, 'cpu:0', has no slash.
    tf.DeviceSpec.from_string(d if '/' in d else f'/{d}').device_type
    for d in mesh_impl.devices
  }
  if None in kinds and tf.config.list_physical_devices('GPU'):
    return False
  return kinds <= {None, 'CPU'}
