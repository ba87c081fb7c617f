"""What the layer refuses, and how it says so."""

import functools
import importlib

import gin
import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import family, harness


@pytest.mark.parametrize(
  'settings, message',
  [
    (
      {'mixing': 'softmaxx'},
      r"SyntheticAttention\.mixing = 'softmaxx'.*'softmax', 'layer_softmax', "
      r"'sum'.*did you mean 'softmax'",
    ),
    (
      {'index_by': 'rows'},
      r"SyntheticAttention\.index_by = 'rows'.*did you mean 'row'",
    ),
    (
      {'normalize': 'softmx'},
      r"SyntheticAttention\.normalize = 'softmx'.*did you mean 'softmax'",
    ),
    (
      {'relative_attention_type': 'bais'},
      r"Attention\.relative_attention_type = 'bais'.*did you mean 'bias'",
    ),
    (
      {'synthesizers': []},
      r'SyntheticAttention\.synthesizers = \[\].*at least one',
    ),
    (
      {'synthesizers': [synth_mtf.DotProduct, 'Random']},
      r"SyntheticAttention\.synthesizers = \['Random'\].*function",
    ),
    (
      {'synthesizers': synth_mtf.DotProduct()},
      r'SyntheticAttention\.synthesizers = .*expected a list',
    ),
    (
      {'synthesizers': [dict]},
      r'SyntheticAttention\.synthesizers made \[\{\}\].*SynthesizingFunction',
    ),
    (
      {'num_heads': 6, 'num_memory_heads': 4},
      r'SelfAttention\.num_heads = 6 is not divisible by '
      r'SelfAttention\.num_memory_heads = 4',
    ),
    ({'num_heads': 0}, r'SelfAttention\.num_heads = 0'),
    ({'num_memory_heads': -1}, r'num_memory_heads = -1'),
    (
      {'attention_func': 'hybrid'},
      r"SelfAttention\.attention_func = 'hybrid'",
    ),
    ({'use_hyperprompt': True}, r'SelfAttention\.use_hyperprompt'),
    (
      {'hyperprompt_length_encoder': 3},
      r'SelfAttention\.hyperprompt_length_encoder',
    ),
    (
      {'hyperprompt_length_decoder': 3},
      r'SelfAttention\.hyperprompt_length_decoder',
    ),
    (
      {'attention_kwargs': {'extra_logit': 0.0}},
      r"SelfAttention\.attention_kwargs\['extra_logit'\]",
    ),
  ],
  ids=lambda value: '-'.join(value) if isinstance(value, dict) else '',
)
def test_refused_when_the_layer_is_made(settings, message):
  with pytest.raises(ConfigurationError, match=message):
    synth_mtf.SyntheticAttention(**settings)


def test_all_that_is_not_supported_is_named_at_once():
  with pytest.raises(ConfigurationError) as error:
    synth_mtf.SyntheticAttention(attention_func='hybrid', use_hyperprompt=True)
  assert 'attention_func' in str(error.value)
  assert 'use_hyperprompt' in str(error.value)


def test_an_argument_that_nobody_has():
  with pytest.raises(
    ConfigurationError, match=r"nomber_of_heads.*did you mean 'num_heads'"
  ):
    synth_mtf.SyntheticAttention(nomber_of_heads=3)


@pytest.fixture
def empty_gin():
  gin.clear_config()
  yield
  gin.clear_config()


def test_bindings_of_self_attention_reach_the_layer(empty_gin):
  gin.parse_config("""
      SelfAttention.num_heads = 3
      SelfAttention.key_value_size = 5
      SelfAttention.dropout_rate = 0.25
      SelfAttention.relative_attention_type = 'bias'
  """)
  layer = synth_mtf.SyntheticAttention()
  assert layer.num_heads == 3
  assert layer.kv_dim.size == 5
  assert layer.dropout_rate == 0.25
  assert layer.relative_attention_type == 'bias'


def max_lengths(layer):
  return [f.max_length for f in layer.synthesizers]


def test_each_layer_makes_its_own_functions(empty_gin):
  gin.parse_config("""
      SyntheticAttention.synthesizers = [@synth_mtf.Random, @synth_mtf.Dense]
      synth_mtf.Random.max_length = 13
      Unitransformer.max_length = 17
  """)
  one, other = synth_mtf.SyntheticAttention(), synth_mtf.SyntheticAttention()
  assert max_lengths(one) == [13, 17]
  for mine, yours in zip(one.synthesizers, other.synthesizers):
    assert mine is not yours


def test_max_length_of_each_stack(empty_gin):
  gin.parse_config("""
      SyntheticAttention.synthesizers = [@synth_mtf.Random]
      encoder/Unitransformer.max_length = 512
      decoder/Unitransformer.max_length = 114
  """)
  for stack, length in (('encoder', 512), ('decoder', 114)):
    with gin.config_scope(stack):
      layer = synth_mtf.SyntheticAttention()
    assert max_lengths(layer) == [length]


def test_max_length_without_gin_is_that_of_t5(empty_gin):
  assert max_lengths(synth_mtf.SyntheticAttention([synth_mtf.Random])) == [512]


@pytest.mark.parametrize(
  'bindings, packed',
  [
    ('', True),
    ('mesh_train_dataset_fn.pack = True', True),
    ('mesh_train_dataset_fn.pack = False', False),
    (
      'mesh_train_dataset_fn.pack = False\nmesh_eval_dataset_fn.pack = True',
      True,
    ),
  ],
  ids=['unsaid', 'packed', 'unpacked', 'packed evaluation'],
)
def test_the_pipeline_says_whether_rows_are_packed(empty_gin, bindings, packed):
  importlib.import_module('t5.models.mesh_transformer')  # registers them
  gin.parse_config(bindings)
  assert synth_mtf.SyntheticAttention().packed == packed
  assert synth_mtf.SyntheticAttention(packed=not packed).packed != packed


@pytest.mark.parametrize('name', ['random', 'dense', 'random_vanilla'])
def test_unpacked_rows_are_right_whatever_the_setting_says(name):
  """Packed or not is a matter of speed where each row is one sequence."""
  member = family.ALL[name]
  ids = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]])
  x = family.tokens(ids)
  one, other = (
    harness.parallel(member.maker(packed=packed), x, ids)
    for packed in (False, True)
  )
  harness.assert_close(one.output, other.output, 'output')
  harness.assert_close(one.gradients, other.gradients, 'gradient')


@pytest.mark.parametrize('name', ['random', 'dense', 'random_dense_vanilla'])
def test_packed_rows_are_the_sequences_alone(name):
  """Three sequences in one row, and in three rows."""
  member = family.ALL[name]
  ids = np.array([[1, 1, 1, 2, 2, 3, 3]])
  x = family.tokens(ids)
  packed = harness.parallel(member.maker(packed=True), x, ids, harness.DECODER)
  rows = np.zeros([3, 3, family.D_MODEL], np.float32)
  row_ids = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 0]])
  cotangent = np.zeros_like(rows)
  whole = harness.draw('cotangent', x.shape)
  for segment in (1, 2, 3):
    at = ids[0] == segment
    rows[segment - 1, : at.sum()] = x[0, at]
    cotangent[segment - 1, : at.sum()] = whole[0, at]
  alone = harness.parallel(
    member.maker(), rows, row_ids, harness.DECODER, cotangent=cotangent
  )
  harness.assert_close(packed.output[0], alone.output[row_ids != 0], 'output')
  found = dict(packed.gradients)
  expected = dict(alone.gradients)
  harness.assert_close(
    found.pop('x')[0], expected.pop('x')[row_ids != 0], 'gradient of x'
  )
  harness.assert_close(found, expected, 'gradient')


def test_lists_from_python():
  """Classes, and callables without arguments."""
  layer = synth_mtf.SyntheticAttention(
    synthesizers=(
      synth_mtf.DotProduct,
      functools.partial(synth_mtf.Random, max_length=13),
      lambda: synth_mtf.FactorizedRandom(rank=3),
    )
  )
  assert [type(f).__name__ for f in layer.synthesizers] == [
    'DotProduct',
    'Random',
    'FactorizedRandom',
  ]
