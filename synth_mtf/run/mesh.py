"""Checks that a mesh fits the devices, the model and the memory."""

import math
import os
import re
from collections.abc import Sequence

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import errors
from synth_mtf.host.model import ConfiguredModel
from synth_mtf.run.config import RunConfig


def check_devices(names: Sequence[str]) -> None:
  """Checks that the devices of a mesh exist; '' lets TensorFlow choose.

  TensorFlow would run the work of a missing device on another one.
  """
  counts = {
    kind: len(tf.config.list_physical_devices(kind)) for kind in ('CPU', 'GPU')
  }
  for name in filter(None, names):
    match = re.fullmatch(r'(?:/|/device:)?(cpu|gpu)(?::(\d+))?', name, re.I)
    if name.startswith('/job:'):
      if not os.environ.get('TF_CONFIG'):
        raise UserError(
          f'utils.run.mesh_devices: {name!r} needs `synth-mtf cluster`.'
        )
    elif not match or int(match[2] or 0) >= counts[match[1].upper()]:
      raise UserError(
        f'utils.run.mesh_devices: there is no {name!r}. This machine has '
        f'{counts["CPU"]} CPU and {counts["GPU"]} GPUs, numbered from 0; '
        '`synth-mtf doctor` says why a GPU may be missing.'
      )


def check_model(run: RunConfig, model: ConfiguredModel) -> None:
  """Checks that the mesh divides the model and that tensors fit in memory.

  Mesh-TensorFlow finds a wrong mesh only while lowering the graph, which takes
  minutes for a large model. The memory check is for the largest tensor alone.
  """

  def parts(dim: mtf.Dimension) -> int:
    return mtf.tensor_dim_to_mesh_dim_size(run.layout, run.mesh, dim)

  tensors = [t for op in model.mtf_graph.operations for t in op.outputs]
  dims = {dim for t in tensors for dim in t.shape if dim.name != 'batch'}
  if run.lengths:  # with microbatches, the graph's batch is smaller
    dims.add(mtf.Dimension('batch', run.examples))
  faults = [
    f'{dim.name} = {dim.size} is split in {parts(dim)} (it can be split in '
    f'{", ".join(str(n) for n in range(1, dim.size + 1) if dim.size % n == 0)})'
    for dim in sorted(dims)
    if dim.size % parts(dim)
  ]
  if faults:
    raise UserError(
      f'the mesh {run.mesh.to_string} does not divide the model: '
      f'{". ".join(faults)}. Change utils.run.mesh_shape or '
      'utils.tpu_mesh_shape (layouts/*.gin), or the size itself.'
    )
  if run.tpu or any('job' in name for name in run.mesh_devices or ()):
    return  # these devices do not use this machine's memory

  def bytes_of(tensor: mtf.Tensor) -> int:
    split = math.prod(map(parts, tensor.shape))
    return tensor.size * tensor.dtype.size // split

  largest = max(tensors, key=bytes_of)
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  if bytes_of(largest) > memory:
    raise UserError(
      f'out of memory: {largest.name} with {largest.shape.to_string} takes '
      f'{bytes_of(largest) / 1e9:,.0f} GB, and this machine has '
      f'{memory / 1e9:,.0f} GB (utils.run.batch_size = {run.batch_size}).\n'
      f'{errors.MEMORY_ADVICE}'
    )
