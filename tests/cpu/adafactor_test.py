"""Adafactor in few passes: against its formulas, and against the host's."""

import gin
import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf import Adafactor
from synth_mtf.cpu.adafactor import AdafactorStep
from synth_mtf.host import gin_files
from tests import harness
from tests.harness import Mesh

HOST = mtf.optimize.AdafactorOptimizer
RATE, DECAY, EPSILON1, EPSILON2 = 0.3, 0.6, 1e-30, 1e-3
FLOAT32 = mtf.VariableDType(tf.float32, tf.float32, tf.float32)
SHAPES = {
  'wide': {'rows': 4, 'columns': 6},
  'tall': {'rows': 6, 'columns': 4},
  'square': {'rows': 4, 'columns': 4},
  'table': {'heads': 2, 'rows': 4, 'columns': 6},
}
STEPS = 3


def gradients(shape, scale=0.5):
  return [harness.draw(f'gradient {i}', shape, scale) for i in range(STEPS)]


def run(optimizer, dims, grads, mesh=harness.ONE_DEVICE, **settings):
  """W and what is kept for it, by name, after each step; and the operations."""
  shape = mtf.Shape([mtf.Dimension(*item) for item in dims.items()])
  settings = {
    'learning_rate': RATE,
    'decay_rate': DECAY,
    'min_dim_size_to_factor': 2,
    **settings,
  }
  with harness.new_graph(mesh) as (graph, mesh_object):
    tf.train.create_global_step()
    w = mtf.get_variable(mesh_object, 'w', shape, dtype=FLOAT32)
    feed = tf.placeholder(tf.float32, shape.to_integer_list)
    grad = mtf.import_tf_tensor(mesh_object, feed, shape)
    updates = optimizer(**settings).apply_grads([grad], [w.operation])
    kinds = {type(operation) for operation in graph.operations}
    lowering = mtf.Lowering(graph, {mesh_object: mesh.implementation()})
    step = [lowering.lowered_operation(update) for update in updates]
    masters = {v.op.name: v for v in tf.global_variables()}
    del masters['global_step']
    config = tf.ConfigProto(device_count={'CPU': mesh.size})
    found = []
    with tf.Session(config=config) as session:
      session.run(tf.global_variables_initializer())
      session.run(
        masters['w'].initializer,
        {masters['w'].initializer.inputs[1]: harness.draw('w', feed.shape)},
      )
      session.run(lowering.copy_masters_to_slices())
      for array in grads:
        session.run(step, {feed: array})
        session.run(lowering.copy_slices_to_masters())
        found.append(session.run(masters))
  return found, kinds


def expected(dims, grads, threshold=1.0, scaled=True):
  """The formulas of arXiv 1804.04235 (algorithm 4), in float64."""
  w = harness.draw('w', [*dims.values()]).astype(np.float64)
  longer = -1 if w.shape[-1] > w.shape[-2] else -2
  shorter = -3 - longer
  r = c = 0.0
  found = []
  for g in np.asarray(grads, np.float64):
    squared = g**2 + EPSILON1
    r = DECAY * r + (1 - DECAY) * squared.mean(longer, keepdims=True)
    c = DECAY * c + (1 - DECAY) * squared.mean(shorter, keepdims=True)
    u = g / np.sqrt(r * c / r.mean(shorter, keepdims=True))
    if threshold:
      u /= max(1.0, np.sqrt((u**2).mean()) / threshold)
    scale = max(EPSILON2, np.sqrt((w**2).mean())) if scaled else 1.0
    w = w - RATE * scale * u
    found.append(
      {
        'w': w,
        'w_slot_vr': r.squeeze(longer),
        'w_slot_vc': c.squeeze(shorter),
      }
    )
  return found


def assert_steps(found, wanted):
  assert len(found) == len(wanted) == STEPS
  for step, (one, other) in enumerate(zip(found, wanted)):
    assert sorted(one) == sorted(other)
    for name, value in other.items():
      harness.assert_close(one[name], value, f'{name}, step {step}', 3e-6)


@pytest.mark.parametrize('name', SHAPES)
@pytest.mark.parametrize(
  'threshold, exclude',
  [(1.0, []), (None, []), (0.2, []), (1.0, ['w'])],
  ids=['as it is', 'not clipped', 'clipped', 'not scaled'],
)
def test_it_is_the_formula(name, threshold, exclude):
  dims = SHAPES[name]
  grads = gradients([*dims.values()])
  found, kinds = run(
    Adafactor,
    dims,
    grads,
    clipping_threshold=threshold,
    exclude_from_parameter_scale=exclude,
  )
  assert AdafactorStep in kinds
  assert_steps(found, expected(dims, grads, threshold, not exclude))


@pytest.mark.parametrize('name', SHAPES)
@pytest.mark.parametrize('scale', [0.5, 1e-12, 0.0, 1e6])
def test_it_is_the_hosts(name, scale):
  dims = SHAPES[name]
  grads = gradients([*dims.values()], scale)
  wanted, _ = run(HOST, dims, grads)
  found, _ = run(Adafactor, dims, grads)
  assert [*found[0]] == [*wanted[0]], 'names of variables'
  assert_steps(found, wanted)


def test_rates_of_the_host_may_be_schedules():
  dims = SHAPES['wide']
  grads = gradients([*dims.values()])
  defaults = {'learning_rate': None, 'decay_rate': None}
  wanted, _ = run(HOST, dims, grads, **defaults)
  found, _ = run(Adafactor, dims, grads, **defaults)
  assert_steps(found, wanted)


@pytest.mark.parametrize('name', ['wide', 'tall', 'table'])
@pytest.mark.parametrize(
  'layout', ['rows:a', 'columns:a', 'rows:a,columns:b', 'heads:a', 'batch:a']
)
def test_a_mesh_may_split_a_variable(name, layout):
  dims = SHAPES[name]
  grads = gradients([*dims.values()])
  found, kinds = run(Adafactor, dims, grads, Mesh('a:2,b:2', layout))
  assert AdafactorStep in kinds
  assert_steps(found, expected(dims, grads))


@pytest.mark.parametrize(
  'dims, mesh, settings',
  [
    ({'columns': 6}, harness.ONE_DEVICE, {}),
    ({'rows': 6, 'heads': 2, 'columns': 4}, harness.ONE_DEVICE, {}),
    (SHAPES['wide'], harness.ONE_DEVICE, {'factored': False}),
    (SHAPES['wide'], harness.ONE_DEVICE, {'min_dim_size_to_factor': 5}),
    (SHAPES['wide'], harness.ONE_DEVICE, {'beta1': 0.9}),
    (SHAPES['table'], harness.ONE_DEVICE, {'stacked_dim_names': ['heads']}),
    (SHAPES['wide'], harness.TPU, {}),
  ],
  ids=['vector', 'order', 'whole', 'small', 'momentum', 'stacked', 'tpu'],
)
def test_elsewhere_it_is_the_hosts_own(dims, mesh, settings):
  grads = gradients([*dims.values()])
  wanted, operations = run(HOST, dims, grads, mesh, **settings)
  found, same = run(Adafactor, dims, grads, mesh, **settings)
  assert same == operations
  assert_steps(found, wanted)


def test_a_variable_without_a_gradient_stays():
  with harness.new_graph() as (_, mesh):
    shape = mtf.Shape([mtf.Dimension(*d) for d in SHAPES['wide'].items()])
    w = mtf.get_variable(mesh, 'w', shape, dtype=FLOAT32)
    optimizer = Adafactor(learning_rate=RATE, decay_rate=DECAY)
    assert optimizer.apply_grads([None], [w.operation]) == []


@pytest.mark.parametrize(
  'files, bindings, optimizer',
  [
    (['sizes/tiny.gin', 'runs/cpu.gin'], [], 'synth_mtf.Adafactor'),
    (
      ['sizes/tiny.gin', 'runs/cpu.gin'],
      ['utils.run.optimizer = @optimize.SgdOptimizer'],
      'optimize.SgdOptimizer',
    ),
  ],
)
def test_a_size_has_it_and_a_run_may_have_another(files, bindings, optimizer):
  gin_files.parse(files, bindings)
  try:
    reference = gin.query_parameter('utils.run.optimizer')
    assert reference.selector.endswith(optimizer)
  finally:
    gin.clear_config()


def test_bindings_of_the_hosts_reach_it():
  dims = SHAPES['wide']
  grads = gradients([*dims.values()])
  gin.bind_parameter('AdafactorOptimizer.clipping_threshold', 0.2)
  try:
    found, _ = run(Adafactor, dims, grads)
  finally:
    gin.clear_config()
  assert_steps(found, expected(dims, grads, 0.2))
