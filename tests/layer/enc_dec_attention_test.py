"""Cross-attention: what it does not share with self-attention."""

import functools
import types

import gin
import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer, transformer_layers

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness
from tests.family import PACKED, PADDED, encoded
from tests.harness import DECODER


@pytest.mark.sampled
@family.some('cross_random', 'cross_random_vanilla')
@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_targets_without_inputs_are_zero(member, packed):
  """They take nothing from the other examples of their row."""
  rows = family.Rows(
    np.array([[1, 1, 2, 2] if packed else [1, 1, 1, 1]] * 2),
    np.array([[1, 1, 0], [0, 0, 0]]),
  )
  result = checks.parallel(member, rows)
  assert not result.output[1].any()
  for gradient in result.gradients.values():
    assert np.isfinite(gradient).all()


@pytest.mark.sampled
@pytest.mark.parametrize(
  'rows',
  [pytest.param(PADDED, marks=pytest.mark.slow), PACKED],
  ids=['padded', 'packed'],
)
@pytest.mark.parametrize(
  'layer, settings',
  family.one_in(
    3,
    [
      (synth_mtf.SyntheticEncDecAttention, {}),
      (synth_mtf.SyntheticEncDecAttention, {'z_loss_coeff': 1e-2}),
      (synth_mtf.SyntheticEncDecAttention, {'num_heads': 1}),
      (synth_mtf.DotProductEncDecAttention, {'shared_kv': True}),
      (synth_mtf.DotProductEncDecAttention, {}),
    ],
  ),
)
def test_vanilla_is_the_hosts_layer(rows, layer, settings):
  """The same variables, result, gradients and losses."""
  settings = {'num_heads': 3, 'key_value_size': 5, **settings}
  ids = rows.ids[:2]  # rows with tokens
  inputs = encoded(rows.inputs[:2])
  # The host's output at padding is not zero; its stack removes it.
  masked = types.SimpleNamespace(
    call=lambda context, y: transformer.sublayer_mask_padding(y, None, context)
  )
  ours, theirs = (
    harness.parallel(
      [make, lambda: masked], family.tokens(ids), ids, DECODER, encoded=inputs
    )
    for make in (
      functools.partial(layer, packed=rows.packed, **settings),
      functools.partial(transformer_layers.EncDecAttention, **settings),
    )
  )
  checks.same(ours, theirs)


MESHES = {
  'batch:2,model:2': 'batch:batch,heads:model',
  'model:4': 'heads:model',
  'model:2': 'memory_length:model',
}


@pytest.mark.slow  # many cases
@pytest.mark.parametrize('mesh', MESHES)
@family.some('cross_random', 'cross_factorized_random', 'cross_random_vanilla')
def test_meshes(member, mesh):
  """Split over devices it computes the same; memory_length is even here."""
  ids, inputs = (
    np.concatenate([a[:2], a[1::-1]]) for a in (PACKED.ids, PACKED.inputs)
  )
  if 'memory_length' in MESHES[mesh]:  # tables are split too
    member = member.of_size(memory_max_length=8)
  rows = family.Rows(ids, inputs[:, :-1])
  mesh = harness.Mesh(mesh, MESHES[mesh])
  checks.on_a_mesh(member.but(num_heads=4), rows, DECODER, mesh)


def test_a_local_function_needs_no_rows():
  """Its table has only columns: any number of targets will do."""
  checks.parallel(family.CROSS['cross_dense'].of_size(max_length=2))


# Settings.


def test_the_hosts_layer_keeps_its_name_and_label():
  layer = synth_mtf.DotProductEncDecAttention()
  # The host names the variable scope after the class.
  assert type(layer).__name__ == transformer_layers.EncDecAttention.__name__
  assert layer.label == ''


def test_the_hosts_bindings_apply():
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
  # The bindings of self-attention do not apply to cross-attention.
  assert [type(f) for f in ours.synthesizers] == [synth_mtf.DotProduct]


def sizes(layer):
  """The sizes of the only table of a layer."""
  (table,) = layer.synthesizers
  return table.max_length, table.memory_max_length


def test_its_functions_have_their_own_settings():
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


ENCODED = encoded(PADDED.inputs)


@pytest.mark.parametrize(
  'lengths, memory, message',
  [
    (
      (6, 9),
      ENCODED,
      r'length 7 exceeds Random\.max_length = 6; set Random\.max_length >= 7',
    ),
    (
      (7, 8),
      ENCODED,
      r'length 9 exceeds cross/Random\.memory_max_length = 8; set '
      r'cross/Random\.memory_max_length >= 9',
    ),
    ((7, 9), None, 'output of an encoder'),
    (
      (7, 9),
      harness.Encoded(np.zeros([4, 9, 4]), PADDED.inputs),
      'd_model = 4, the decoder 11',
    ),
  ],
  ids=['queries', 'keys', 'no encoder', 'width'],
)
def test_refused(lengths, memory, message):
  rows, columns = lengths
  table = functools.partial(
    synth_mtf.Random, max_length=rows, memory_max_length=columns
  )
  with pytest.raises(ConfigurationError, match=message):
    harness.variables(
      functools.partial(synth_mtf.SyntheticEncDecAttention, [table]),
      family.tokens(PADDED.ids),
      sequence_id=PADDED.ids,
      stack=DECODER if memory else harness.LM,
      encoded=memory,
    )
