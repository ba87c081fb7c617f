"""What is attended to, and how decoding remembers it."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer

from synth_mtf.core import memory
from tests import family, harness
from tests.core import calls

TOKENS = harness.draw('x', [calls.BATCH, calls.LENGTH, calls.D_MODEL])
TWICE = 2.0


def twice(tokens: mtf.Tensor) -> mtf.Tensor:
  return tokens * TWICE


def decoder(mesh: mtf.Mesh, encoded: harness.Encoded) -> transformer.Context:
  """Where decoding starts."""
  return harness.host_context(
    mesh,
    [calls.BATCH, calls.LENGTH, family.D_MODEL],
    stack=harness.DECODER,
    mode='first_part',
    encoded=encoded,
  )


@pytest.mark.parametrize(
  'mode, recorded', [('train', 0), ('eval', 0), ('first_part', 1)]
)
def test_own_sequence_is_remembered_where_decoding_starts(mode, recorded):
  def build(mesh):
    call = calls.make(mesh, mode=mode)
    call.context.new_states = []
    found = call.memory.project(twice)
    assert found.shape.dimension_names == ['batch', 'memory_length', 'd_model']
    assert call.context.new_states == [found] * recorded
    return found

  np.testing.assert_array_equal(harness.evaluate(build), TWICE * TOKENS)


def test_a_token_takes_its_place_among_the_earlier_ones():
  earlier = harness.draw('earlier', TOKENS.shape)
  positions = np.array([1, 3])

  def build(mesh):
    call = calls.make(mesh)
    context = call.context
    context.mode = 'incremental'
    context.position = harness.constant(mesh, positions, 'batch')
    context.states = [
      harness.constant(mesh, earlier, 'batch memory_length d_model')
    ]
    context.new_states = []
    token = harness.constant(mesh, TOKENS[:, 0], 'batch d_model')
    own = memory.OwnSequence(context, token, call.memory_length)
    found = own.project(twice)
    assert context.new_states == [found]
    return found

  expected = earlier.copy()
  for row, position in enumerate(positions):
    expected[row, position] = TWICE * TOKENS[row, 0]
  np.testing.assert_array_equal(harness.evaluate(build), expected)


def test_the_encoders_output_is_projected_by_the_first_part_alone():
  encoded = family.encoded(np.ones([calls.BATCH, 9], int))

  def build(mesh):
    context = decoder(mesh, encoded)
    context.constant_states = []
    found = memory.EncoderOutput(context).project(twice)
    assert context.constant_states == [found]
    context.mode = 'incremental'
    # A step takes what is there and projects nothing.
    again = memory.EncoderOutput(context).project(lambda x: x * 0.0)
    assert again is found
    return found

  np.testing.assert_array_equal(harness.evaluate(build), TWICE * encoded.output)


@pytest.mark.parametrize('place', ['own', 'encoder'])
def test_steps_find_a_matrix_for_each_head(place):
  """[batch, heads, memory_length, d_kv], whatever a projection makes."""
  encoded = family.encoded(np.ones([calls.BATCH, 9], int))
  d_model = family.D_MODEL if place == 'encoder' else calls.D_MODEL
  weights = harness.draw('w', [d_model, 3, 2])

  def build(mesh):
    recorded: list[mtf.Tensor] = []
    w = harness.constant(mesh, weights, 'd_model heads d_kv')

    def heads(x):
      return mtf.einsum([x, w], mtf.Shape(x.shape.dims[:-1] + w.shape.dims[1:]))

    if place == 'own':
      call = calls.make(mesh, mode='first_part')
      call.context.new_states = recorded
      found = call.memory.project(heads)
    else:
      context = decoder(mesh, encoded)
      context.constant_states = recorded
      found = memory.EncoderOutput(context).project(heads)
    assert recorded == [found]
    *_, heads_dim, _, d_kv = found.shape.dimension_names
    assert (heads_dim, d_kv) == ('heads', 'd_kv')
    return found

  tokens = TOKENS if place == 'own' else encoded.output
  np.testing.assert_allclose(
    harness.evaluate(build),
    np.einsum('bmd,dhk->bhmk', tokens, weights),
    rtol=1e-4,
    atol=1e-6,
  )
