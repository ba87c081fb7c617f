"""What a mesh says of its devices."""

import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl

from synth_mtf.core import dimensions


@pytest.mark.parametrize(
  'names, has_gpu, expected',
  [
    (['cpu:0'], True, True),
    (['cpu:0', 'cpu:1'], True, True),
    (['/job:worker/task:0/device:CPU:0'], True, True),
    ([''], False, True),
    ([''], True, False),
    (['/job:worker/task:1'], True, False),
    (['gpu:0'], False, False),
    (['cpu:0', 'gpu:0'], False, False),
    (['/job:worker/task:0/device:GPU:1'], True, False),
  ],
)
def test_a_mesh_of_cpus(monkeypatch, names, has_gpu, expected):
  """Where the mesh leaves devices to TensorFlow, the machine decides."""
  found = ['/GPU:0'] if has_gpu else []
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: found)
  mesh = placement_mesh_impl.PlacementMeshImpl(
    f'all:{len(names)}', 'batch:all', names
  )
  assert dimensions.on_cpu(mesh) == expected
