"""T5's projections, each made when it is first used."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.core.projections import Projections
from tests import harness

SETTINGS = [
  {},
  {'num_heads': 1},
  {'num_memory_heads': 1},
  {'num_memory_heads': 3},
  {'shared_kv': True},
  {'combine_dims': False},
  {'fold_scaling_into_initializer': False},
  {'keep_query_heads_dims': True},
]


X = harness.draw('x', [2, 4, 60])


def host_layer(settings):
  return transformer_layers.SelfAttention(
    **{'num_heads': 6, 'key_value_size': 8, **settings}
  )


def spreads(graph):
  """Shape and standard deviation of the initial values, by name."""
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    values = session.run({v.op.name: v for v in tf.global_variables()})
  dims = {v.name: v.shape.to_integer_list for v in graph.all_variables}
  return {n: (dims[n], float(np.std(value))) for n, value in values.items()}


@pytest.mark.parametrize('settings', SETTINGS, ids=str)
def test_they_are_the_hosts(settings):
  layer = host_layer(settings)
  shared = settings.get('shared_kv', False)
  found = []
  for make in (
    layer.make_params,
    lambda context: Projections.of_layer(layer, context),
  ):
    with harness.new_graph() as (graph, mesh):
      params = make(harness.host_context(mesh, X.shape))
      x = harness.constant(mesh, X, 'batch length d_model')
      memory = harness.constant(mesh, X, 'batch memory_length d_model')
      projected = [
        params.compute_q(x),
        params.keys(memory)
        if isinstance(params, Projections)
        else (params.compute_kv if shared else params.compute_k)(memory),
        params.values(memory)
        if isinstance(params, Projections)
        else (params.compute_kv if shared else params.compute_v)(memory),
      ]
      found.append((spreads(graph), [y.shape for y in projected]))
  (theirs, their_shapes), (ours, our_shapes) = found
  assert our_shapes == their_shapes
  assert ours.keys() == theirs.keys()
  for name, (shape, spread) in theirs.items():
    assert ours[name][0] == shape
    assert ours[name][1] == pytest.approx(spread, rel=0.1)


def test_what_nobody_asks_for_is_not_made():
  with harness.new_graph() as (graph, mesh):
    context = harness.host_context(mesh, X.shape)
    params = Projections.of_layer(host_layer({}), context)
    assert [v.name for v in graph.all_variables] == ['o']
    assert params.wq is params.wq
    assert [v.name for v in graph.all_variables] == ['o', 'q']
