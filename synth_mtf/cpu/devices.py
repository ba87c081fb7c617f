"""Whether a mesh is one of CPUs."""

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf


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
