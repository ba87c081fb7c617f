"""Cross-attention against the reference, in every mode of the host."""

import functools

import gin
import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

import synth_mtf
from synth_mtf.core import kernels
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness
from tests.family import encoded
from tests.harness import DECODER

PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
PADDED_INPUTS = np.array([[1] * 5 + [0] * 4, [1] * 9, [1] + [0] * 8])
PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0]])
PACKED_INPUTS = np.array(
  [[1, 1, 2, 2, 2, 2, 3, 3, 3], [1, 1, 1, 1, 2, 0, 0, 0, 0]]
)

every_member = family.each(family.CROSS)


@every_member
def test_padding_of_both_sides(name):
  member = family.CROSS[name]
  checks.parallel(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    encoded=encoded(PADDED_INPUTS),
    tolerance=member.tolerance,
  )


@every_member
def test_packed_rows(name):
  member = family.CROSS[name]
  checks.parallel(
    member.maker(packed=True),
    member.reference(),
    PACKED,
    DECODER,
    encoded=encoded(PACKED_INPUTS),
  )


@every_member
def test_bfloat16(name):
  member = family.CROSS[name]
  checks.parallel(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    dtype='bfloat16',
    encoded=encoded(PADDED_INPUTS),
    weights=lambda n, shape: harness.draw(n, shape, 0.3),
    tolerance=6e-2,  # the gradient of alpha nearly cancels
  )


@every_member
def test_beam_decoding(name):
  """From nothing, position a scalar; the encoder's output has no beams."""
  member = family.CROSS[name]
  checks.decoded(
    member.maker(),
    member.reference(),
    (2, 3, 4),
    beam=True,
    encoded=encoded(PADDED_INPUTS[:2]),
  )


@every_member
def test_greedy_decoding(name):
  """From some tokens on, a position for each row."""
  member = family.CROSS[name]
  checks.decoded(
    member.maker(),
    member.reference(),
    (3, 5),
    np.array([4, 0, 3]),
    encoded=encoded(PADDED_INPUTS),
  )


@pytest.mark.parametrize('mode', ['train', 'eval'])
@pytest.mark.parametrize('name', ['cross_random', 'cross_random_vanilla'])
def test_two_batch_dimensions(name, mode):
  """What the host has in training: [outer_batch, batch, length, d_model]."""
  member = family.CROSS[name]
  checks.parallel(
    member.maker(packed=True),
    member.reference(),
    np.stack([PACKED, PACKED[::-1], PADDED[:2]]),
    DECODER,
    mode=mode,
    encoded=encoded(
      np.stack([PACKED_INPUTS, PACKED_INPUTS[::-1], PADDED_INPUTS[:2]])
    ),
  )


@pytest.mark.parametrize('name', ['cross_random', 'cross_dense_vanilla'])
def test_tables_read_by_the_row(name):
  member = family.CROSS[name]
  checks.parallel(
    member.maker(packed=True, index_by='row'),
    member.reference(),
    PACKED,
    DECODER,
    by_row=True,
    encoded=encoded(PACKED_INPUTS),
  )


@pytest.mark.parametrize(
  'layer, reference',
  [
    ({'num_heads': 1}, {'heads': 1}),
    ({'num_memory_heads': 1}, {'memory_heads': 1}),
    ({'shared_kv': True}, {'shared_kv': True}),
    ({'mixing': 'layer_softmax'}, {'mixing': 'layer_softmax'}),
    ({'mixing': 'sum'}, {'mixing': 'sum'}),
  ],
  ids=['one head', 'one memory head', 'shared_kv', 'alpha of a layer', 'sum'],
)
def test_settings(layer, reference):
  member = family.CROSS['cross_factorized_dense_random_vanilla']
  inputs = encoded(PADDED_INPUTS)
  checks.parallel(
    member.maker(**layer),
    member.reference(**reference),
    PADDED,
    DECODER,
    encoded=inputs,
  )
  checks.decoded(
    member.maker(**layer), member.reference(**reference), (3, 4), encoded=inputs
  )


@pytest.mark.parametrize('name', ['cross_random', 'cross_random_vanilla'])
@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_targets_without_inputs_are_zero(name, packed):
  """And take nothing from the other examples of their row."""
  member = family.CROSS[name]
  result = checks.parallel(
    member.maker(packed=packed),
    member.reference(),
    np.array([[1, 1, 2, 2] if packed else [1, 1, 1, 1]] * 2),
    DECODER,
    encoded=encoded([[1, 1, 0], [0, 0, 0]]),
  )
  assert not result.output[1].any()
  for gradient in result.gradients.values():
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize('name', ['cross_random', 'cross_dense_vanilla'])
@pytest.mark.parametrize('packed', [False, True], ids=['unpacked', 'packed'])
def test_what_stands_at_padding_of_the_encoder_changes_nothing(name, packed):
  member = family.CROSS[name]
  x = family.tokens(PADDED)
  one = encoded(PADDED_INPUTS)
  noise = harness.draw('noise', one.output.shape)
  other = np.where(PADDED_INPUTS[..., None] == 0, noise, one.output)
  outputs = [
    harness.parallel(
      member.maker(packed=packed), x, PADDED, DECODER, encoded=memory
    ).output
    for memory in (one, harness.Encoded(other, PADDED_INPUTS))
  ]
  harness.assert_close(outputs[1], outputs[0])


def test_the_largest_tensor_of_r_does_not_grow_with_the_batch():
  length, memory_length, heads = 23, 29, 3

  def largest(function, batch):
    make = functools.partial(
      synth_mtf.SyntheticEncDecAttention,
      [function],
      num_heads=heads,
      key_value_size=1,
      packed=False,
      dropout_rate=0.1,
    )
    result = harness.parallel(
      make,
      harness.draw('x', [batch, length, 4]),
      np.ones([batch, length], int),
      DECODER,
      encoded=harness.Encoded(
        harness.draw('memory', [batch, memory_length, 4]),
        np.ones([batch, memory_length], int),
      ),
    )
    return max(np.prod(shape, dtype=int) for _, shape in result.shapes)

  for function in (synth_mtf.Random, synth_mtf.FactorizedRandom):
    table = functools.partial(
      function, max_length=length, memory_max_length=memory_length
    )
    sizes = {largest(table, batch) for batch in (2, 7)}
    assert sizes == {heads * length * memory_length}
  # The measure sees what it should: the dot product does grow.
  assert largest(synth_mtf.DotProduct, 7) == 7 * heads * length * memory_length


@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
@pytest.mark.parametrize(
  'layer, settings',
  [
    (synth_mtf.SyntheticEncDecAttention, {}),
    (synth_mtf.SyntheticEncDecAttention, {'z_loss_coeff': 1e-2}),
    (synth_mtf.SyntheticEncDecAttention, {'num_heads': 1}),
    (synth_mtf.DotProductEncDecAttention, {}),
    (synth_mtf.DotProductEncDecAttention, {'shared_kv': True}),
  ],
)
def test_vanilla_is_the_hosts_layer(packed, layer, settings):
  """The same variables, result, gradients and losses."""
  settings = {'num_heads': 3, 'key_value_size': 5, **settings}
  ids = PACKED if packed else PADDED
  inputs = encoded(PACKED_INPUTS if packed else PADDED_INPUTS)
  x = family.tokens(ids)
  cotangent = harness.draw('cotangent', x.shape) * (ids != 0)[..., None]
  ours, theirs = (
    harness.parallel(make, x, ids, DECODER, cotangent=cotangent, encoded=inputs)
    for make in (
      functools.partial(layer, packed=packed, **settings),
      functools.partial(transformer_layers.EncDecAttention, **settings),
    )
  )
  assert ours.weights.keys() == theirs.weights.keys()
  for name, weights in theirs.weights.items():
    assert ours.weights[name].shape == weights.shape
  # The host gives something at padding, which its stack then removes.
  harness.assert_close(ours.output[ids != 0], theirs.output[ids != 0])
  harness.assert_close(ours.gradients, theirs.gradients, 'gradient')
  harness.assert_close(np.array(ours.losses), np.array(theirs.losses), 'loss')


MESHES = {
  'batch:2,model:2': 'batch:batch,heads:model',
  'model:4': 'heads:model',
  'model:2': 'memory_length:model',
}


@pytest.mark.slow  # one of many
@pytest.mark.parametrize('mesh', MESHES)
@pytest.mark.parametrize(
  'name', ['cross_random', 'cross_factorized_random', 'cross_random_vanilla']
)
@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_meshes(name, mesh, packed):
  """Split over devices it computes the same; memory_length is even here."""
  member = family.CROSS[name]
  ids = np.concatenate([PACKED, PACKED[::-1]])
  inputs = np.concatenate([PACKED_INPUTS, PACKED_INPUTS[::-1]])[:, :-1]
  if not packed:
    ids, inputs = np.minimum(ids, 1), np.minimum(inputs, 1)
  if 'memory_length' in MESHES[mesh]:  # tables are split too
    member = member.of_size(memory_max_length=8)
  one, many = (
    harness.parallel(
      member.maker(num_heads=4, packed=packed),
      family.tokens(ids),
      ids,
      DECODER,
      mesh=m,
      encoded=encoded(inputs),
    )
    for m in (harness.ONE_DEVICE, harness.Mesh(mesh, MESHES[mesh]))
  )
  harness.assert_close(many.output, one.output, 'output')
  harness.assert_close(many.gradients, one.gradients, 'gradient')


@pytest.mark.parametrize(
  'name',
  [
    'cross_random',
    'cross_factorized_random',
    'cross_factorized_dense',
    'cross_vanilla',
  ],
)
def test_reading_tables_as_on_a_tpu(name, monkeypatch):
  """There a gather is a product with a one-hot matrix."""
  monkeypatch.setattr(kernels, 'is_tpu', lambda mesh: True)
  member = family.CROSS[name]
  for packed, ids, inputs in (
    (True, PACKED, PACKED_INPUTS),
    (False, PADDED, PADDED_INPUTS),
  ):
    checks.parallel(
      member.maker(packed=packed),
      member.reference(),
      ids,
      DECODER,
      encoded=encoded(inputs),
    )


# Settings.


def test_the_hosts_own_has_its_name_and_adds_none_to_tables():
  layer = synth_mtf.DotProductEncDecAttention()
  # The host makes the scope of a layer's variables of the name of its class.
  assert type(layer).__name__ == transformer_layers.EncDecAttention.__name__
  assert layer.label == ''


def test_bindings_flow_as_into_the_hosts_layer():
  gin.parse_config("""
      SelfAttention.num_heads = 3
      SelfAttention.dropout_rate = 0.25
      SelfAttention.relative_attention_type = 'bias_shared'
      EncDecAttention.key_value_size = 5
      SyntheticAttention.mixing = 'sum'
      SyntheticAttention.synthesizers = [@synth_mtf.Random]
  """)
  ours, theirs = (
    synth_mtf.SyntheticEncDecAttention(),
    transformer_layers.EncDecAttention(),
  )
  assert isinstance(ours, transformer_layers.EncDecAttention)
  for name in vars(theirs):
    assert getattr(ours, name) == getattr(theirs, name), name
  assert (ours.num_heads, ours.kv_dim.size) == (3, 5)
  assert ours.relative_attention_type is None
  # What is said of self-attention's alignment is not said of this one.
  assert [type(f) for f in ours.synthesizers] == [synth_mtf.DotProduct]


def sizes(layer):
  """The sizes of the one table of a layer."""
  (table,) = layer.synthesizers
  return table.max_length, table.memory_max_length


def test_its_functions_have_numbers_of_their_own():
  gin.parse_config("""
      synth_mtf.FactorizedRandom.rank = 8
      decoder/cross/synth_mtf.FactorizedRandom.rank = 16
      encoder/Unitransformer.max_length = 512
      decoder/Unitransformer.max_length = 114
  """)
  maker = [synth_mtf.FactorizedRandom]
  with gin.config_scope('decoder'):
    own = synth_mtf.SyntheticAttention(maker)
    cross = synth_mtf.SyntheticEncDecAttention(maker)
  ranks = [vars(f)['rank'] for f in (*own.synthesizers, *cross.synthesizers)]
  assert ranks == [8, 16]
  assert sizes(own) == (114, 114)
  assert sizes(cross) == (114, 512)


def test_max_length_without_gin_is_that_of_t5():
  layer = synth_mtf.SyntheticEncDecAttention([synth_mtf.Random])
  assert sizes(layer) == (512, 512)


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'synthesizers': [synth_mtf.FixedPatterns]}, 'FixedPatterns is for self-'),
    (
      {'relative_attention_type': 'contextual'},
      r"SyntheticEncDecAttention\.relative_attention_type = 'contextual'",
    ),
    ({'mixing': 'softmaxx'}, r'SyntheticEncDecAttention\.mixing'),
    ({'nomber_of_heads': 3}, r'SyntheticEncDecAttention\.nomber_of_heads'),
    (
      {'synthesizers': []},
      r'SyntheticEncDecAttention\.synthesizers = \[\].*at least one',
    ),
    ({'use_hyperprompt': True}, r'SelfAttention\.use_hyperprompt'),
  ],
  ids=str,
)
def test_refused(settings, message):
  with pytest.raises(ConfigurationError, match=message):
    synth_mtf.SyntheticEncDecAttention(**settings)


@pytest.mark.parametrize(
  'lengths, message',
  [
    ((6, 9), r'length 7 exceeds max_length 6 .* set Random\.max_length >= 7'),
    (
      (7, 8),
      r'length 9 exceeds memory_max_length 8 of the Random table; set '
      r'cross/Random\.memory_max_length >= 9',
    ),
  ],
)
def test_more_tokens_than_a_table_has_are_refused(lengths, message):
  rows, columns = lengths
  table = functools.partial(
    synth_mtf.Random, max_length=rows, memory_max_length=columns
  )
  with pytest.raises(ConfigurationError, match=message):
    harness.parallel(
      functools.partial(synth_mtf.SyntheticEncDecAttention, [table]),
      family.tokens(PADDED),
      PADDED,
      DECODER,
      encoded=encoded(PADDED_INPUTS),
    )


def test_a_local_function_needs_no_rows():
  """Its table has columns alone: any number of targets will do."""
  member = family.CROSS['cross_dense'].of_size(max_length=2)
  checks.parallel(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    encoded=encoded(PADDED_INPUTS),
  )


def test_a_model_without_an_encoder_is_refused():
  with pytest.raises(ConfigurationError, match='output of an encoder'):
    harness.parallel(
      synth_mtf.SyntheticEncDecAttention,
      family.tokens(PADDED),
      stack=harness.LM,
    )


def test_an_encoder_of_another_width_is_refused():
  memory = harness.Encoded(np.zeros([3, 9, 4]), PADDED_INPUTS)
  with pytest.raises(ConfigurationError, match='d_model = 4, the decoder 11'):
    harness.parallel(
      synth_mtf.SyntheticEncDecAttention,
      family.tokens(PADDED),
      PADDED,
      DECODER,
      encoded=memory,
    )
