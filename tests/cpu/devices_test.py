"""What is only for a CPU is built where all devices of the mesh are CPUs."""

import collections

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow import placement_mesh_impl

import synth_mtf
from synth_mtf.core import dimensions
from synth_mtf.cpu import tiles
from synth_mtf.synthesizers.dot_product import DotProduct
from synth_mtf.synthesizers.random import Random
from tests import family, harness

IDS = np.array([[1, 1, 1, 1, 2, 0], [1, 1, 1, 0, 0, 0]])


def operations(device, function, packed):
  """How often a layer and its gradient have each kind of operation."""
  with harness.new_graph() as (graph, mesh):
    context = harness.host_context(mesh, (2, 6, 7), IDS)
    layer = synth_mtf.SyntheticAttention(
      synthesizers=[function], packed=packed, num_heads=2, key_value_size=4
    )
    x = harness.constant(
      mesh, harness.draw('x', [2, 6, 7]), 'batch length d_model'
    )
    y = layer.call(context, x)
    mtf.gradients([mtf.reduce_sum(y)], [x])
    on = placement_mesh_impl.PlacementMeshImpl('all:1', 'batch:all', [device])
    mtf.Lowering(graph, {mesh: on})
    kinds = [op.type for op in tf.get_default_graph().get_operations()]
  return collections.Counter(kinds)


@pytest.mark.sampled
@pytest.mark.parametrize(
  'function, packed',
  family.one_in(2, [(Random, False), (Random, True), (DotProduct, True)]),
)
def test_a_gpu_gets_single_steps(monkeypatch, function, packed):
  """No tiles, no windows, and the host's products."""
  monkeypatch.setattr(tiles, '_TILE', 12)
  on_cpu = operations('cpu:0', function, packed)
  on_gpu = operations('gpu:0', function, packed)
  exponentials = 'Exp' if function is Random and not packed else 'Softmax'
  assert on_cpu[exponentials] > 2
  assert on_gpu[exponentials] == 2  # forward, and again for the gradient
  assert on_cpu['ScatterNd'] and on_cpu['Where']
  for kind in ('ScatterNd', 'Where'):
    assert kind not in on_gpu


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
  shape = f'all:{len(names)}'
  mesh = placement_mesh_impl.PlacementMeshImpl(shape, 'batch:all', names)
  assert dimensions.on_cpu(mesh) == expected
