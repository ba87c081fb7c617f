"""One call of a layer: its dimensions, what it remembers, its variables."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.core import layer_call
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
    assert names(call.memory.shape) == 'batch memory_length d_model'


def test_dimensions_in_an_ensemble():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh, ensemble=2)
    assert names(call.batch) == 'ensemble batch'
    assert names(call.shared) == 'ensemble heads length memory_length'


def step(mesh, call, **settings):
  """The call on one token of each row, in incremental decoding."""
  context = call.context
  length = context.length_dim
  context.mode = 'incremental'
  context.position = harness.constant(mesh, np.array([1, 3]), 'batch')
  context.states, context.new_states = settings['states'], []
  token = mtf.slice(call.x, 0, 1, length.name)
  return layer_call.LayerCall(
    context,
    mtf.reshape(token, call.x.shape - length),
    call.projections,
    call.index,
    call.kv_dim,
    call.logits_dtype,
  )


def test_dimensions_of_a_token():
  with harness.new_graph() as (_, mesh):
    call = step(mesh, calls.make(mesh), states=[])
    assert names(call.batch) == 'batch'
    assert call.length == []
    assert names(call.local) == 'batch heads memory_length'
    assert call.memory is call.x


@pytest.mark.parametrize(
  'mode, recorded', [('train', 0), ('eval', 0), ('first_part', 1)]
)
def test_states_are_recorded_where_decoding_starts(mode, recorded):
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh, mode=mode)
    call.context.new_states = []
    assert call.remember(call.x) is call.x
    assert len(call.context.new_states) == recorded


def test_a_token_takes_its_place_among_the_earlier_ones():
  earlier = harness.draw('earlier', [calls.BATCH, calls.LENGTH, calls.D_MODEL])

  def build(mesh):
    state = harness.constant(mesh, earlier, 'batch memory_length d_model')
    call = step(mesh, calls.make(mesh), states=[state])
    memory = call.remember(call.x)
    assert call.context.new_states == [memory]
    return memory, call.x

  memory, token = harness.evaluate(build)
  expected = earlier.copy()
  for row, position in enumerate((1, 3)):
    expected[row, position] = token[row]
  np.testing.assert_array_equal(memory, expected)


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
    assert names(other.memory.shape) == 'batch memory_length d_model'
    for name in ('context', 'projections', 'index', 'kv_dim', 'logits_dtype'):
      assert getattr(other, name) is getattr(call, name)


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


@pytest.mark.parametrize(
  'stack, shared',
  [
    (None, True),
    (transformer.LayerStack([]), True),
    (transformer.LayerStack([], recompute_grads=True), False),
    (transformer.ReversibleLayerStack([]), False),
  ],
  ids=['none', 'plain', 'recomputed', 'reversible'],
)
def test_layers_share_what_is_not_computed_again(stack, shared):
  with harness.new_graph() as (_, mesh):
    context = calls.make(mesh).context
    context.model.layer_stack = stack
    one, other = (
      layer_call.once(context, 'x', lambda: object()) for _ in range(2)
    )
    assert (one is other) == shared
    assert layer_call.once(context, 'y', lambda: 3) == 3
