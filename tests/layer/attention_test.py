"""The whole family against the reference, in every mode of the host."""

import functools
from typing import Any

import numpy as np
import pytest

import synth_mtf
from synth_mtf.core import kernels
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER, LM, PREFIX_LM

PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0]])

every_member = pytest.mark.parametrize('name', sorted(family.ALL))


@every_member
def test_encoder_with_padding(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(relative_attention_type='bias'),
    member.reference(relative='bias'),
    PADDED,
    ENCODER,
    tolerance=member.tolerance,
  )


@every_member
def test_decoder_with_packed_rows(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PACKED, DECODER
  )


@every_member
def test_bfloat16(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    dtype='bfloat16',
    weights=lambda n, shape: harness.draw(n, shape, 0.3),
  )


@every_member
def test_beam_decoding_is_parallel(name):
  """From nothing, with a scalar position and a beam dimension."""
  member = family.ALL[name]
  ones = np.ones([2, 3, 3], int)
  x = family.tokens(ones)
  settings = {'relative_attention_type': 'bias'}
  parallel = harness.parallel(
    member.maker(**settings), x, ones, DECODER, mode='eval'
  )
  decoded = harness.decode(member.maker(**settings), x, beam=True)
  harness.assert_close(decoded, parallel.output, 'token by token')


@every_member
def test_greedy_decoding_goes_on_from_a_partial_sequence(name):
  """From some tokens, with a position for each row, in a language model."""
  member = family.ALL[name]
  x = family.tokens(np.ones([3, 5], int))
  start = np.array([4, 3, 3])
  decoded = harness.decode(member.maker(), x, start, stack=LM)
  parallel = harness.parallel(member.maker(), x, None, LM, mode='eval').output
  new = np.arange(5) >= start[:, None]
  assert np.isnan(decoded[~new]).all()
  harness.assert_close(decoded[new], parallel[new], 'after the given tokens')


@pytest.mark.parametrize('name', ['random', 'conv_relu_conv', 'glu'])
def test_encoder_at_inference(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PADDED, ENCODER, mode='infer'
  )


@pytest.mark.parametrize('name', ['random', 'dense', 'random_dense_vanilla'])
@pytest.mark.parametrize('mode', ['train', 'eval'])
def test_two_batch_dimensions(name, mode):
  """What the host has in training: [outer_batch, batch, length, d_model]."""
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True),
    member.reference(),
    np.stack([PACKED, PACKED[::-1], PADDED[:2]]),
    DECODER,
    mode=mode,
  )


# Members that differ in what they share with the other parts of the layer.
SAMPLE = [
  'vanilla',
  'random',
  'dense',
  'fixed_patterns',
  'random_dense_vanilla',
]
# Of the layer, and of its reference.
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


BY_SETTING = [
  *((name, s) for name in ('random', 'random_dense_vanilla') for s in SETTINGS),
  # Members that count the heads, or have channels of their own.
  *(
    (name, s)
    for name in ('fixed_patterns', 'conv_relu_conv', 'factorized_dense')
    for s in ('one_head', 'two_memory_heads')
  ),
]


@pytest.mark.parametrize('name, setting', BY_SETTING)
def test_settings(name, setting):
  member = family.ALL[name]
  layer, expected = SETTINGS[setting]
  packed = len(name) % 2 == 0
  checks.parallel(
    member.maker(packed=packed, **layer),
    member.reference(**expected),
    PACKED if packed else PADDED,
    DECODER,
  )


@pytest.mark.parametrize(
  'setting', ['one_head', 'one_memory_head', 'shared_kv']
)
def test_settings_in_decoding(setting):
  member = family.ALL['random_dense_vanilla']
  layer, _ = SETTINGS[setting]
  x = family.tokens(np.ones([2, 3], int))
  parallel = harness.parallel(
    member.maker(**layer), x, None, LM, mode='eval'
  ).output
  decoded = harness.decode(member.maker(**layer), x, stack=LM)
  harness.assert_close(decoded, parallel, 'token by token')


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


@pytest.mark.parametrize('name', ['vanilla', 'random', 'random_dense_vanilla'])
@pytest.mark.parametrize('ids', [None, PADDED], ids=['lm', 'padded'])
def test_ensemble(name, ids):
  """Each model of an ensemble is a model of its own."""
  member = family.ALL[name]
  x = family.tokens(np.ones([3, 7], int))
  result = harness.parallel(
    member.maker(relative_attention_type='bias'), x, ids, DECODER, ensemble=2
  )
  layer = member.reference(relative='bias')
  for model in range(2):
    weights = {n: w[model] for n, w in family.float64(result.weights).items()}
    expected = reference.rows(
      layer,
      x.astype(np.float64),
      weights,
      np.ones([3, 7], int) if ids is None else ids,
      causal=True,
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
def test_reading_tables_as_on_a_tpu(name, monkeypatch):
  """There a gather is a product with a one-hot matrix."""
  monkeypatch.setattr(kernels, 'is_tpu', lambda mesh: True)
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PACKED, DECODER
  )
  x = family.tokens(np.ones([2, 3], int))
  parallel = harness.parallel(member.maker(), x, None, LM, mode='eval').output
  start = np.array([2, 1])
  decoded = harness.decode(member.maker(), x, start, stack=LM)
  new = np.arange(3) >= start[:, None]
  harness.assert_close(decoded[new], parallel[new], 'token by token')


@pytest.mark.parametrize('name', ['random', 'factorized_random'])
@pytest.mark.parametrize('tpu', [False, True], ids=['cpu', 'tpu'])
def test_rows_that_are_done_decode_on_beyond_the_table(name, tpu, monkeypatch):
  """The host goes on until the last row is done: positions pass the end."""
  monkeypatch.setattr(kernels, 'is_tpu', lambda mesh: tpu)
  function = {
    'random': synth_mtf.Random,
    'factorized_random': synth_mtf.FactorizedRandom,
  }[name]
  maker = family.Member(
    (functools.partial(function, max_length=4),), ()
  ).maker()
  x = family.tokens(np.ones([2, 4], int))
  start = np.array([3, 1])
  decoded = harness.decode(maker, x, start, stack=LM)
  parallel = harness.parallel(maker, x, None, LM, mode='eval').output
  new = np.arange(4) >= start[:, None]
  harness.assert_close(decoded[new], parallel[new], 'token by token')
