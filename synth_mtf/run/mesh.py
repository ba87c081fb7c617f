"""Whether a mesh fits: its devices, the model on it, and the memory.

The layout rules split dimensions of tensors over dimensions of the mesh
("heads over model"), which must divide them. Mesh-TensorFlow finds the first
fault when it lowers the graph, which takes minutes for a large model.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import errors
from synth_mtf.host.model import ConfiguredModel
from synth_mtf.run.config import RunConfig


def check_devices(names: Sequence[str]) -> None:
  """Checks that the devices of a mesh exist.

  TensorFlow would move the work of a missing device to another one.

  Args:
    names: as in `utils.run.mesh_devices`; '' leaves the choice to TensorFlow.

  Raises:
    UserError: a name is not a device's, or this machine lacks the device.
  """
  faults = [fault for name in names for fault in _device_faults(name)]
  if faults:
    raise UserError(
      f'utils.run.mesh_devices = {list(names)!r}: {"; ".join(faults)}. This '
      f'machine has {", ".join(_devices())}; `synth-mtf doctor` says why a GPU '
      'may be missing.'
    )


def _device_faults(name: str) -> Iterator[str]:
  if not name:
    return
  try:
    # Mesh-TensorFlow's short form has no slash.
    device = tf.DeviceSpec.from_string(name if '/' in name else f'/{name}')
  except ValueError:
    device = tf.DeviceSpec()
  if device.job is not None or device.task is not None:
    config = json.loads(os.environ.get('TF_CONFIG') or '{}')
    if not {'session_master', 'cluster'} & set(config):
      yield f'{name!r} needs `synth-mtf cluster`'
  elif device.device_type is None:
    yield f'{name!r} is not the name of a device'
  else:
    wanted = f'{device.device_type.lower()}:{device.device_index or 0}'
    if wanted not in _devices():
      yield f'there is no {name!r}'


def _devices() -> list[str]:
  return [
    f'{kind.lower()}:{number}'
    for kind in ('CPU', 'GPU')
    for number, _ in enumerate(tf.config.list_physical_devices(kind))
  ]


def check_divides(run: RunConfig, model: ConfiguredModel) -> None:
  """Checks that the mesh divides the sizes of the model and its batch.

  Raises:
    UserError: it does not; lists all such sizes, and mesh sizes that would do.
  """
  sizes = {('batch', run.examples)} if run.lengths else set()
  sizes |= {('heads', layer.num_heads) for layer in model.attention.values()}
  # Where heads and d_kv are a single dimension, the number of heads decides.
  sizes |= {
    (dim.name, dim.size)
    for shape in model.shapes.values()
    for dim in shape
    if dim.name != 'heads'
  }
  faults = []
  for name, size in sorted(sizes):
    dim = mtf.Dimension(name, size)
    axis = run.layout.tensor_dimension_to_mesh_axis(dim, run.mesh)
    if axis is not None and size % run.mesh[axis].size:
      fitting = [str(n) for n in range(1, size + 1) if size % n == 0]
      more = ', ...' if len(fitting) > 8 else ''
      faults.append(
        f'{name} = {size} is split over {run.mesh[axis].name} = '
        f'{run.mesh[axis].size}; sizes that divide it: '
        f'{", ".join(fitting[:8])}{more}'
      )
  if faults:
    raise UserError(
      f'the mesh {run.mesh.to_string} does not divide the model: '
      f'{". ".join(faults)}. Change utils.run.mesh_shape or '
      'utils.tpu_mesh_shape (layouts/*.gin), or the size itself.'
    )


def check_memory(run: RunConfig, model: ConfiguredModel) -> None:
  """Checks that this machine can hold the largest tensor of the graph.

  Does nothing where the devices belong to other machines.

  Raises:
    UserError: a single tensor, split over the mesh, needs more than there is.
  """
  if run.tpu or any('job' in name for name in run.mesh_devices or ()):
    return
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')

  def bytes_of(tensor: mtf.Tensor) -> int:
    split = run.layout.tensor_layout(tensor.shape, run.mesh)
    parts = math.prod(run.mesh[axis].size for axis in split if axis is not None)
    return tensor.size * tensor.dtype.size // parts

  tensors = (t for op in model.mtf_graph.operations for t in op.outputs)
  largest = max(tensors, key=bytes_of)
  if bytes_of(largest) > memory:
    raise UserError(
      f'out of memory: {largest.name} with {largest.shape.to_string} takes '
      f'{bytes_of(largest) / 1e9:,.0f} GB, and this machine has '
      f'{memory / 1e9:,.0f} GB (utils.run.batch_size = {run.batch_size}).\n'
      f'{errors.MEMORY_ADVICE}'
    )
