"""One call of a layer: its dimensions, its projections, its variables."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers

from tests import harness
from tests.core import calls


def names(dims):
  return ' '.join(d.name for d in dims)


def test_dimensions_of_a_row():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh)
    assert names(call.batch) == 'batch'
    assert names(call.length) == 'length'
    assert names(call.heads) == 'heads'
    assert names(call.shared) == 'heads length memory_length'
    assert names(call.local) == 'batch heads length memory_length'


def test_dimensions_in_an_ensemble():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh, ensemble=2)
    assert names(call.batch) == 'ensemble batch'
    assert names(call.shared) == 'ensemble heads length memory_length'


def step(mesh, call):
  """The call on one token of each row, in incremental decoding."""
  context = call.context
  length = context.length_dim
  context.mode = 'incremental'
  context.position = harness.constant(mesh, np.array([1, 3]), 'batch')
  token = mtf.slice(call.x, 0, 1, length.name)
  return call.with_input(mtf.reshape(token, call.x.shape - length))


def test_dimensions_of_a_token():
  with harness.new_graph() as (_, mesh):
    call = step(mesh, calls.make(mesh))
    assert names(call.batch) == 'batch'
    assert call.length == []
    assert names(call.local) == 'batch heads memory_length'


@pytest.mark.parametrize('shared', [False, True])
def test_keys_may_be_the_values(shared):
  layer = transformer_layers.SelfAttention(num_heads=3, shared_kv=shared)
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh, layer=layer)
    assert (call.keys is call.values) == shared
    assert call.values is call.values
    assert names(call.keys.shape) == 'batch memory_length heads d_kv'
    assert names(call.queries.shape) == 'batch length heads d_kv'


@pytest.mark.parametrize(
  'mesh, splits',
  [
    (harness.ONE_DEVICE, False),
    (harness.Mesh('model:2', 'heads:model'), False),
    (harness.Mesh('model:2', 'memory_length:model'), True),
    (harness.Mesh('model:1', 'memory_length:model'), False),
  ],
)
def test_what_the_mesh_splits(mesh, splits):
  with harness.new_graph(mesh) as (_, mesh_object):
    call = calls.make(mesh_object, mesh=mesh)
    assert call.splits(call.memory_length) is splits


def test_the_same_call_of_another_input():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh)
    other = call.with_input(call.x * 2.0)
    assert other.x is not call.x
    assert {**vars(other), 'x': call.x} == vars(call)


@pytest.mark.parametrize('ensemble', [0, 2])
@pytest.mark.parametrize('trainable', [False, True])
def test_a_variable(ensemble, trainable):
  with harness.new_graph() as (graph, mesh):
    call = calls.make(mesh, ensemble=ensemble, dtype='bfloat16')
    dims = [mtf.Dimension('a', 100), mtf.Dimension('b', 50)]
    for dtype, used in ((None, tf.bfloat16), (tf.float32, tf.float32)):
      made = call.variable(
        f'w {used.name}'.replace(' ', '_'),
        dims,
        stddev=0.25,
        dtype=dtype,
        trainable=trainable,
      )
      assert made.dtype == used
      assert names(made.shape) == ('ensemble a b' if ensemble else 'a b')
    variables = {v.name: v for v in graph.all_variables}
    assert variables['w_bfloat16'].master_dtype == tf.float32
    trained = {v.name for v in graph.trainable_variables}
    assert ('w_float32' in trained) == trainable


def test_a_variables_initial_values():
  def build(mesh):
    dims = [mtf.Dimension('a', 100), mtf.Dimension('b', 50)]
    return calls.make(mesh).variable('w', dims, stddev=0.25)

  drawn = harness.evaluate(build, weights=None)
  assert abs(drawn.std() - 0.25) < 0.01
  assert abs(drawn.mean()) < 0.02
