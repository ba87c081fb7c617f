"""T5's projections, each made when it is first used."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.core.projections import Projections
from tests import harness

X = harness.draw('x', [2, 4, 60])


def host_layer(**settings):
  return transformer_layers.SelfAttention(
    **{'num_heads': 6, 'key_value_size': 8, **settings}
  )


def made(graph):
  """Shape and spread of the initial values of each variable."""
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    values = session.run({v.op.name: v for v in tf.global_variables()})
  dims = {v.name: v.shape.to_integer_list for v in graph.all_variables}
  return {
    n: (dims[n], pytest.approx(np.std(x), rel=0.1)) for n, x in values.items()
  }


@pytest.mark.parametrize(
  'settings',
  [
    {},
    {'num_heads': 1},
    {'num_memory_heads': 1},
    {'num_memory_heads': 3},
    {'shared_kv': True},
    {'combine_dims': False},
    {'fold_scaling_into_initializer': False},
  ],
  ids=str,
)
def test_variables_and_shapes_are_the_hosts(settings):
  layer = host_layer(**settings)
  with harness.new_graph() as (graph, mesh):
    theirs = layer.make_params(harness.host_context(mesh, X.shape))
    expected = made(graph)
  with harness.new_graph() as (graph, mesh):
    ours = Projections(layer, harness.host_context(mesh, X.shape))
    x = harness.constant(mesh, X, 'batch length d_model')
    memory = harness.constant(mesh, X, 'batch memory_length d_model')
    rows, columns = x.shape.dims[:2], memory.shape.dims[:2]
    assert ours.compute_q(x).shape.dims == rows + theirs.q_dims
    assert ours.keys(memory).shape.dims == columns + theirs.k_dims
    assert ours.values(memory).shape.dims == columns + theirs.v_dims
    found = made(graph)
  assert found.keys() == expected.keys()
  for name, (shape, spread) in expected.items():
    assert found[name][0] == shape
    assert found[name][1].expected == spread


def test_what_nobody_asks_for_is_not_made():
  with harness.new_graph() as (graph, mesh):
    params = Projections(host_layer(), harness.host_context(mesh, X.shape))
    x = harness.constant(mesh, X, 'batch length d_model')
    assert [v.name for v in graph.all_variables] == ['o']
    for _ in range(2):
      params.compute_q(x)
    assert [v.name for v in graph.all_variables] == ['o', 'q']
