"""The whole family against the reference, in every mode of the host."""

import functools
from typing import Any

import gin
import numpy as np
import pytest

import synth_mtf
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER, LM, PREFIX_LM, TPU

# Also a row of one token, and one of nothing but padding.
PADDED = np.array(
  [[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0], [0] * 7]
)
PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0], [0] * 7])


@family.each()
def test_encoder_with_padding(name):
  """Whatever stands at padding: here the host does not make it zero."""
  member = family.ALL[name]
  checks.parallel(
    member.maker(relative_attention_type='bias'),
    member.reference(relative='bias'),
    PADDED,
    ENCODER,
    tolerance=member.tolerance,
    host_masks=False,
  )


@family.each()
def test_decoder_with_packed_rows(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PACKED, DECODER
  )


@family.each()
def test_bfloat16(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    mode='train' if name in SAMPLE else 'eval',
    dtype='bfloat16',
    weights=lambda n, shape: harness.draw(n, shape, 0.3),
  )


@family.each()
def test_beam_decoding(name):
  """From nothing, with a scalar position and a beam dimension."""
  member = family.ALL[name]
  checks.decoded(
    member.maker(relative_attention_type='bias'),
    member.reference(relative='bias'),
    (2, 3, 3),
    beam=True,
  )


@family.each()
def test_greedy_decoding_goes_on_from_a_partial_sequence(name):
  """From some tokens, with a position for each row, in a language model."""
  member = family.ALL[name]
  checks.decoded(
    member.maker(), member.reference(), (3, 5), np.array([4, 3, 3]), stack=LM
  )


@pytest.mark.parametrize('name', ['random', 'conv_relu_conv', 'glu'])
def test_encoder_at_inference(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PADDED, ENCODER, mode='infer'
  )


@pytest.mark.parametrize(
  'name, mode',
  [('random', 'train'), ('dense', 'eval'), ('random_dense_vanilla', 'train')],
)
def test_two_batch_dimensions(name, mode):
  """What the host has in training: [outer_batch, batch, length, d_model]."""
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True),
    member.reference(),
    np.stack([PACKED, PACKED[::-1], PADDED[:3]]),
    DECODER,
    mode=mode,
  )


# Members that differ in what they share with the other parts of the layer.
SAMPLE = ['random', 'fixed_patterns', 'random_dense_vanilla']
# Settings of the layer, and of its reference.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
  'one_head': ({'num_heads': 1}, {'heads': 1}),
  'one_head_bias': (
    {'num_heads': 1, 'relative_attention_type': 'bias'},
    {'heads': 1, 'relative': 'bias'},
  ),
  'contextual': (
    {'relative_attention_type': 'contextual'},
    {'relative': 'contextual'},
  ),
  'few_buckets': (
    {
      'relative_attention_type': 'bias',
      'relative_attention_num_buckets': 5,
    },
    {'relative': 'bias', 'buckets': 5},
  ),
  'shared_kv': ({'shared_kv': True}, {'shared_kv': True}),
  'one_memory_head': (
    {'num_memory_heads': 1, 'relative_attention_type': 'bias'},
    {'memory_heads': 1, 'relative': 'bias'},
  ),
  'two_memory_heads': (
    {'num_heads': 6, 'num_memory_heads': 2},
    {'heads': 6, 'memory_heads': 2},
  ),
  'layer_softmax': ({'mixing': 'layer_softmax'}, {'mixing': 'layer_softmax'}),
  'sum': ({'mixing': 'sum'}, {'mixing': 'sum'}),
  'no_softmax': ({'normalize': None}, {'normalize': False}),
}


@pytest.mark.parametrize('setting', SETTINGS)
def test_settings(setting):
  member = family.ALL['random_dense_vanilla']
  layer, expected = SETTINGS[setting]
  checks.parallel(
    member.maker(packed=True, **layer),
    member.reference(**expected),
    PACKED,
    DECODER,
  )


@pytest.mark.parametrize(
  'setting',
  [
    'one_head_bias',
    'contextual',
    'one_memory_head',
    'two_memory_heads',
    'no_softmax',
  ],
)
def test_settings_where_examples_share_their_logits(setting):
  member = family.ALL['random']
  layer, expected = SETTINGS[setting]
  checks.parallel(
    member.maker(**layer), member.reference(**expected), PADDED, DECODER
  )


@pytest.mark.parametrize(
  'name', ['fixed_patterns', 'conv_relu_conv', 'factorized_dense']
)
@pytest.mark.parametrize('setting', ['one_head', 'two_memory_heads'])
def test_settings_where_heads_are_counted_or_have_channels(name, setting):
  member = family.ALL[name]
  layer, expected = SETTINGS[setting]
  checks.parallel(
    member.maker(packed=True, **layer),
    member.reference(**expected),
    PACKED,
    DECODER,
  )


@pytest.mark.parametrize(
  'setting', ['one_head', 'one_memory_head', 'shared_kv']
)
def test_settings_in_decoding(setting):
  member = family.ALL['random_dense_vanilla']
  layer, expected = SETTINGS[setting]
  checks.decoded(
    member.maker(**layer), member.reference(**expected), (2, 3), stack=LM
  )


@pytest.mark.parametrize('name', ['random', 'random_dense_vanilla'])
def test_layers_share_a_relative_bias(name):
  member = family.ALL[name]
  settings = {'relative_attention_type': 'bias_shared'}
  x = family.tokens(np.ones([2, 7], int))
  make = member.maker(**settings)
  result = harness.parallel([make, make], x)
  weights = family.float64(result.weights)
  shared = weights.pop('layer_000/relative_attention_bias')
  assert not [n for n in weights if 'relative_attention_bias' in n]
  y = x.astype(np.float64)
  for scope in ('layer_000', 'layer_001'):
    own = {
      n[len(scope) + 1 :]: w for n, w in weights.items() if n.startswith(scope)
    }
    layer = member.reference(relative='bias')
    y = np.stack(
      [layer(row, {**own, 'relative_attention_bias': shared}) for row in y]
    )
  harness.assert_close(result.output, y, 'two layers')


@pytest.mark.parametrize('name', SAMPLE)
def test_prefix_language_model(name):
  """input_full_attention: all inputs see each other, targets look back."""
  member = family.ALL[name]
  x = family.tokens(np.ones([2, 5], int))
  priority = np.array([[0, 0, 0, 3, 4], [0, 0, 2, 3, 4]])
  result = harness.parallel(
    member.maker(), x, None, PREFIX_LM, priority=priority
  )
  visible = priority[:, :, None] >= priority[:, None, :]
  weights = family.float64(result.weights)
  expected = np.stack(
    [
      member.reference()(row, weights, causal=True, visible=v)
      for row, v in zip(x.astype(np.float64), visible)
    ]
  )
  harness.assert_close(result.output, expected, 'output')


@pytest.mark.parametrize(
  'name, ids',
  [('random', None), ('random', PADDED), ('random_dense_vanilla', PADDED)],
  ids=['shared-lm', 'shared-padded', 'general-padded'],
)
def test_ensemble(name, ids):
  """Each model of an ensemble is a model of its own."""
  member = family.ALL[name]
  tokens = np.ones([3, 7], int) if ids is None else ids
  x = family.tokens(tokens)
  result = harness.parallel(
    member.maker(relative_attention_type='bias'), x, ids, DECODER, ensemble=2
  )
  layer = member.reference(relative='bias')
  for model in range(2):
    weights = {n: w[model] for n, w in family.float64(result.weights).items()}
    expected = reference.rows(
      layer, x.astype(np.float64), weights, tokens, causal=True
    )
    harness.assert_close(result.output[model], expected, f'model {model}')


# Members that read tables in each of the ways there are.
TABLES = [
  'random',
  'factorized_random',
  'dense',
  'factorized_dense',
  'conv_relu_conv',
]


@pytest.mark.parametrize('name', TABLES)
def test_packed_rows_as_on_a_tpu(name):
  """There a gather is a product with a one-hot matrix."""
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PACKED, DECODER, mesh=TPU
  )


@pytest.mark.parametrize('name', ['random', 'random_random', 'random_vanilla'])
def test_padded_rows_as_on_a_tpu(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(relative_attention_type='bias'),
    member.reference(relative='bias'),
    PADDED,
    DECODER,
    mesh=TPU,
  )


@pytest.mark.parametrize('name', ['random', 'conv_relu_conv'])
def test_decoding_as_on_a_tpu(name):
  member = family.ALL[name]
  checks.decoded(
    member.maker(),
    member.reference(),
    (2, 3),
    np.array([2, 1]),
    stack=LM,
    mesh=TPU,
  )


@pytest.mark.parametrize('name', ['random', 'factorized_random'])
@pytest.mark.parametrize('mesh', [harness.ONE_DEVICE, TPU], ids=['cpu', 'tpu'])
def test_rows_that_are_done_decode_on_beyond_the_table(name, mesh):
  """The host goes on until the last row is done: positions pass the end."""
  member = family.ALL[name].of_size(max_length=4)
  checks.decoded(
    member.maker(),
    member.reference(),
    (2, 4),
    np.array([3, 1]),
    stack=LM,
    mesh=mesh,
  )


@pytest.mark.parametrize('name', ['random', 'dense', 'random_dense_vanilla'])
def test_unpacked_rows_are_right_whatever_the_setting_says(name):
  """Packed or not is a matter of speed where each row is one sequence."""
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PADDED, ENCODER
  )


def test_with_its_defaults_it_is_t5s_own_layer():
  x = family.tokens(np.ones([2, 7]))
  make = functools.partial(
    synth_mtf.SyntheticAttention, num_heads=3, key_value_size=5
  )
  assert set(harness.parallel(make, x).weights) == {'q', 'k', 'v', 'o'}


def test_bindings_of_self_attention_reach_the_layer():
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


@pytest.mark.parametrize(
  'settings, label',
  [
    ({'synthesizers': [synth_mtf.DotProduct]}, 'T5 (V)'),
    (
      {'synthesizers': [synth_mtf.Random, synth_mtf.DotProduct]},
      'Syn (R+V)',
    ),
    (
      {'synthesizers': [synth_mtf.Random], 'normalize': None},
      'MLP-Mixer (R)',
    ),
  ],
)
def test_label(settings, label):
  assert synth_mtf.SyntheticAttention(**settings).label == label
