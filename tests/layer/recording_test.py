"""What layers tell of their attention: the reference's, and their own."""

import contextlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.layer.recording import Alignment, recorded_by
from tests import family, harness
from tests.family import HEADS
from tests.harness import DECODER, ENCODER
from tests.layer import alignments

FULL = np.ones((3, 7), int)
PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]])
PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0]])
INPUTS = np.array([[1] * 5 + [0] * 4, [1] * 9, [1] * 2 + [0] * 7])


@pytest.mark.parametrize(
  'stack',
  [ENCODER, pytest.param(DECODER, marks=pytest.mark.slow)],
  ids=lambda stack: stack.name,
)
@family.each()
def test_padded_rows(name, stack):
  member = family.ALL[name]
  alignments.compare(member.maker(), member.reference(), PADDED, stack)


@family.each(['random', 'dense', 'random_dense_vanilla', 'mlp_mixer'])
def test_packed_rows(name):
  member = family.ALL[name]
  alignments.compare(
    member.maker(packed=True), member.reference(), PACKED, DECODER
  )


@family.each(family.CROSS)
def test_cross_attention(name):
  member = family.CROSS[name]
  alignments.compare(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    family.encoded(INPUTS),
  )


@pytest.mark.parametrize('kind', ['bias', 'bias_shared'])
def test_relative_position_bias(kind):
  member = family.ALL['random_vanilla']
  alignments.compare(
    member.maker(relative_attention_type=kind),
    member.reference(relative='bias'),
    PADDED,
    DECODER,
  )


@pytest.mark.parametrize(
  'name, has_batch',
  [('random', False), ('random_dense', True), ('vanilla', True)],
)
def test_what_examples_share_has_no_batch(name, has_batch):
  told, _ = alignments.recorded(family.ALL[name].maker(), FULL, ENCODER)
  names = told[0].logits.shape.dimension_names
  assert ('batch' in names) == has_batch


@pytest.mark.parametrize(
  'mixing, shape', [('softmax', (HEADS,)), ('layer_softmax', ()), ('sum', None)]
)
def test_alpha(mixing, shape):
  member = family.ALL['random_dense_vanilla']
  _, found = alignments.recorded(member.maker(mixing=mixing), FULL, ENCODER)
  if shape is None:
    assert found['alphas'] == []
    return
  assert [a.shape for a in found['alphas']] == [shape] * 3
  np.testing.assert_allclose(sum(found['alphas']), 1, rtol=1e-6)
  scores = harness.draw('alpha', [3, *shape]).astype(np.float64)
  expected = np.exp(scores) / np.exp(scores).sum(0)
  harness.assert_close(np.stack(found['alphas']), expected, 'alpha')


def test_weights_are_those_before_dropout():
  member = family.ALL['random_vanilla']
  make = member.maker(dropout_rate=0.5)
  _, trained = alignments.recorded(make, PADDED, ENCODER, mode='train')
  _, evaluated = alignments.recorded(make, PADDED, ENCODER)
  harness.assert_close(trained['weights'], evaluated['weights'], 'weights')


def test_nothing_is_made_where_nobody_asks():
  def operations(by):
    with harness.new_graph() as (graph, mesh):
      x = family.tokens(PADDED)
      context = harness.host_context(mesh, x.shape, PADDED)
      dims = [*context.batch_dims, context.length_dim, context.model.model_dim]
      y = harness.constant(mesh, x, dims)
      with by, tf.variable_scope(harness.SCOPE):
        family.ALL['random_dense'].maker()().call(context, y)
      return [(type(op), op.name) for op in graph.operations]

  with recorded_by(lambda told: None):
    pass  # a recorder that has gone
  told: list[Alignment] = []
  quiet = operations(contextlib.nullcontext())
  loud = operations(recorded_by(told.append))
  assert told
  assert len(quiet) < len(loud)
