"""What layers tell of their attention: the reference's, and their own."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer, transformer_layers

from synth_mtf.host import attention
from synth_mtf.layer.recording import Alignment, recorded_by
from tests import family, harness
from tests.family import D_KV, D_MODEL, HEADS
from tests.harness import DECODER, ENCODER

FULL = np.ones((3, 7), int)
PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]])
PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0]])
INPUTS = np.array([[1] * 5 + [0] * 4, [1] * 9, [1] * 2 + [0] * 7])


def recorded(
  make_layer, sequence_id, stack, encoded=None, mode='eval', by=recorded_by
):
  """Logits, weights and output of a layer, and whether they have a batch."""
  x = family.tokens(sequence_id)
  found: list[Alignment] = []

  def build(mesh):
    context = harness.host_context(
      mesh, x.shape, sequence_id, stack, mode, encoded=encoded
    )
    dims = [*context.batch_dims, context.length_dim, context.model.model_dim]
    y = transformer.sublayer_mask_padding(
      harness.constant(mesh, x, dims), None, context
    )
    with by(found.append), tf.variable_scope(harness.SCOPE):
      output = make_layer().call(context, y)
    (told,) = found
    return {
      'output': output,
      'logits': told.logits,
      'weights': told.weights,
      'alphas': [a for a in told.alphas if a is not None],
    }

  return found, harness.evaluate(build)


def weights_of(make_layer, sequence_id, stack, encoded=None):
  """The values that `recorded` runs with, by name."""
  x = family.tokens(sequence_id)
  shapes = harness.parallel(
    make_layer, x, sequence_id, stack, 'eval', encoded=encoded
  ).weights
  return family.float64(shapes)


def compare(make_layer, reference, sequence_id, stack, encoded=None, **how):
  """Compares what is told with the reference and with the layer's output."""
  told, found = recorded(make_layer, sequence_id, stack, encoded, **how)
  variables = weights_of(make_layer, sequence_id, stack, encoded)
  x = family.tokens(sequence_id).astype(np.float64)
  # What all examples share is there once.
  logits, weights = (
    np.broadcast_to(a, (len(x), *a.shape[-3:]))
    for a in (found['logits'], found['weights'])
  )
  memory, memory_id = x, sequence_id
  if encoded:
    memory = encoded.output.astype(np.float64)
    memory_id = encoded.sequence_id
  v, o = variables['v'], variables['o']
  v = np.einsum('bmd,dhk->bhmk', memory, v.reshape(D_MODEL, HEADS, D_KV))
  read = np.einsum('bhnm,bhmk->bnhk', weights, v)
  output = read.reshape(*x.shape[:2], -1) @ o.reshape(-1, D_MODEL)
  for row, ids in enumerate(sequence_id):
    for segment in set(ids) - {0}:
      (at,) = np.nonzero(ids == segment)
      (there,) = np.nonzero(memory_id[row] == segment)
      expected = reference.alignment(
        x[row, at],
        variables,
        causal=stack.autoregressive,
        memory=encoded and memory[row, there],
      )
      block = np.ix_(np.arange(HEADS), at, there)
      shown = expected[1] != 0
      harness.assert_close(
        np.where(shown, logits[row][block], 0),
        np.where(shown, expected[0], 0),
        f'logits of row {row}, segment {segment}',
      )
      harness.assert_close(
        weights[row][block], expected[1], f'weights of row {row}'
      )
      # Nothing else is looked at.
      elsewhere = np.delete(weights[row][:, at], there, axis=-1)
      np.testing.assert_array_equal(elsewhere, 0)
    # Weights times values are what the layer itself has computed.
    tokens = ids != 0
    harness.assert_close(
      output[row][tokens], found['output'][row][tokens], f'output {row}'
    )
  return told, found


@pytest.mark.parametrize(
  'stack',
  [ENCODER, pytest.param(DECODER, marks=pytest.mark.slow)],
  ids=lambda stack: stack.name,
)
@family.each()
def test_padded_rows(name, stack):
  member = family.ALL[name]
  compare(member.maker(), member.reference(), PADDED, stack)


@family.each(['random', 'dense', 'random_dense_vanilla', 'mlp_mixer'])
def test_packed_rows(name):
  member = family.ALL[name]
  compare(member.maker(packed=True), member.reference(), PACKED, DECODER)


@family.each(family.CROSS)
def test_cross_attention(name):
  member = family.CROSS[name]
  compare(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    family.encoded(INPUTS),
  )


@pytest.mark.parametrize('kind', ['bias', 'bias_shared'])
def test_relative_position_bias(kind):
  member = family.ALL['random_vanilla']
  compare(
    member.maker(relative_attention_type=kind),
    member.reference(relative='bias'),
    PADDED,
    DECODER,
  )


@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
def test_layers_of_the_host(stack):
  """SelfAttention is the reference's V."""
  make = functools.partial(
    transformer_layers.SelfAttention,
    num_heads=HEADS,
    key_value_size=D_KV,
    relative_attention_type='bias',
  )
  compare(
    make,
    family.V.reference(relative='bias'),
    PADDED,
    stack,
    by=attention.recorded_by,
  )


def test_cross_attention_of_the_host():
  make = functools.partial(
    transformer_layers.EncDecAttention, num_heads=HEADS, key_value_size=D_KV
  )
  compare(
    make,
    family.V.reference(),
    PADDED,
    DECODER,
    family.encoded(INPUTS),
    by=attention.recorded_by,
  )


def test_layers_of_the_host_are_left_as_they_were():
  before = transformer_layers.SelfAttention.attention_fn
  with pytest.raises(ValueError), attention.recorded_by(print):
    int('no number')
  assert transformer_layers.SelfAttention.attention_fn is before


@pytest.mark.parametrize(
  'name, has_batch',
  [('random', False), ('random_dense', True), ('vanilla', True)],
)
def test_what_examples_share_has_no_batch(name, has_batch):
  told, _ = recorded(family.ALL[name].maker(), FULL, ENCODER)
  names = told[0].logits.shape.dimension_names
  assert ('batch' in names) == has_batch


@pytest.mark.parametrize(
  'mixing, shape', [('softmax', (HEADS,)), ('layer_softmax', ()), ('sum', None)]
)
def test_alpha(mixing, shape):
  member = family.ALL['random_dense_vanilla']
  _, found = recorded(member.maker(mixing=mixing), FULL, ENCODER)
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
  _, trained = recorded(make, PADDED, ENCODER, mode='train')
  _, evaluated = recorded(make, PADDED, ENCODER)
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
