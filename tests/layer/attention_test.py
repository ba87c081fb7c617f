"""The whole family against the reference, in every mode of the host."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

from tests import checks, family, harness, reference
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER, LM, PREFIX_LM, TPU

pytestmark = pytest.mark.sampled

BIAS = {'relative_attention_type': 'bias'}
STACKED = family.Rows(  # [outer_batch, batch, length], as in training
  np.stack([PACKED.ids, PACKED.ids[::-1], PADDED.ids[:3]]),
  np.stack([PACKED.inputs, PACKED.inputs[::-1], PADDED.inputs[:3]]),
)
small_weights = functools.partial(harness.draw, scale=0.3)


@family.every(family.ALL)
def test_encoder_with_padding(member):
  """The contents of padding do not matter: it is not zero here."""
  checks.parallel(member.but(**BIAS), PADDED, ENCODER, mask_padding=False)


@family.every(family.CROSS)
def test_cross_attention_with_padding(member):
  checks.parallel(member, PADDED, DECODER)


@family.every({**family.ALL, **family.CROSS})
def test_decoder_with_packed_rows(member):
  checks.parallel(member, PACKED, DECODER)


@family.every(family.FEW)
def test_bfloat16(member):
  settings: dict[str, Any] = {'mode': 'eval'}
  if member.is_cross_attention:  # the gradient of alpha nearly cancels
    settings = {'tolerance': 8e-2}
  checks.parallel(member, dtype='bfloat16', weights=small_weights, **settings)


@pytest.mark.parametrize('name', family.one_in(2, family.FEW))
def test_beam_decoding(name):
  """From nothing, with a scalar position and a beam dimension."""
  member = family.FEW[name]
  if not member.is_cross_attention:
    member = member.but(**BIAS)
  checks.decoded(member, (2, 3, 4), beam=True)


@pytest.mark.parametrize('name', family.one_in(2, family.FEW))
def test_greedy_decoding_continues_a_partial_sequence(name):
  """Each row has its own position."""
  member = family.FEW[name]
  start = np.array([4, 0 if member.is_cross_attention else 3, 3])
  stack = DECODER if member.is_cross_attention else LM
  checks.decoded(member, (3, 5), start, stack)


# Members by name, changes of their settings, and arguments of `parallel`. As on
# a TPU, a gather is a product with a one-hot matrix.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
  (
    'random fixed_patterns random_dense_vanilla',
    {},
    {'dtype': 'bfloat16', 'weights': small_weights},
  ),
  (
    'random conv_relu_conv glu',
    {'packed': True},
    {'stack': ENCODER, 'mode': 'infer'},
  ),
  ('random random_dense_vanilla cross_random', {}, {'rows': STACKED}),
  ('dense cross_random_vanilla', {}, {'rows': STACKED, 'mode': 'eval'}),
  *(  # as in the original code
    (
      'random dense cross_random cross_dense_vanilla',
      {'index_by': 'row'},
      {'rows': PACKED, 'mode': mode},
    )
    for mode in ('train', 'eval')
  ),
  # `packed` affects only the speed if each row is one sequence.
  ('random dense random_dense_vanilla', {'packed': True}, {'stack': ENCODER}),
  (
    'random factorized_random dense factorized_dense conv_relu_conv '
    'cross_random cross_factorized_random cross_factorized_dense cross_vanilla',
    {},
    {'rows': PACKED, 'mesh': TPU},
  ),
  *(
    ('random random_random random_vanilla', settings, {'mesh': TPU})
    for settings in (
      {**BIAS, 'relative_attention_num_buckets': 5},
      {'z_loss_coeff': 0.1},
    )
  ),
  (
    'cross_random cross_factorized_random cross_factorized_dense cross_vanilla',
    {},
    {'mesh': TPU},
  ),
]


@pytest.mark.parametrize(
  'name, settings, arguments',
  [
    pytest.param(
      *(name, settings, arguments),
      id=f'{name}-{number}',
      marks=pytest.mark.slow if i % 3 else [],
    )
    for number, (names, settings, arguments) in enumerate(CASES)
    for i, name in enumerate(names.split())
  ],
)
def test_some_members(name, settings, arguments):
  member = {**family.ALL, **family.CROSS}[name]
  checks.parallel(member.but(**settings), **arguments)


def test_tables_read_by_the_row_decode_as_by_position():
  checks.decoded(family.R.but(index_by='row'), (2, 3), stack=LM)


SETTINGS: dict[str, dict[str, Any]] = {
  'one_head': {'num_heads': 1},
  'one_head_bias': {'num_heads': 1, **BIAS},
  'one_memory_head': {'num_memory_heads': 1},
  'one_memory_head_bias': {'num_memory_heads': 1, **BIAS},
  'two_memory_heads': {'num_heads': 6, 'num_memory_heads': 2},
  'shared_kv': {'shared_kv': True},
  'contextual': {'relative_attention_type': 'contextual'},
  'few_buckets': {**BIAS, 'relative_attention_num_buckets': 5},
  'layer_softmax': {'mixing': 'layer_softmax'},
  'sum': {'mixing': 'sum'},
  'unnormalized': {'normalize': None},
  'z_loss': {'z_loss_coeff': 0.1},
}
CROSS_SETTINGS = 'one_head one_memory_head shared_kv layer_softmax sum'


def each_setting(*table):
  """Parametrizes by rows of a member's name, more arguments, and settings."""
  members = {**family.ALL, **family.CROSS}
  return [
    pytest.param(
      *(members[name].but(**SETTINGS[setting]), *more),
      id=f'{name}-{setting}',
      marks=pytest.mark.slow if i % 4 else [],
    )
    for name, *more, settings in table
    for i, setting in enumerate(settings.split())
  ]


@pytest.mark.parametrize(
  'member, rows',
  each_setting(
    (
      'random_dense_vanilla',
      PACKED,
      'one_head one_head_bias one_memory_head_bias two_memory_heads shared_kv '
      'contextual few_buckets layer_softmax sum unnormalized z_loss',
    ),
    (  # examples share their logits
      'random',
      PADDED,
      'one_head_bias one_memory_head two_memory_heads contextual unnormalized '
      'z_loss',
    ),
    # Heads are counted, or have channels.
    ('fixed_patterns', PACKED, 'one_head two_memory_heads'),
    ('conv_relu_conv', PACKED, 'one_head two_memory_heads'),
    ('factorized_dense', PACKED, 'one_head two_memory_heads'),
    ('cross_factorized_dense_random_vanilla', PADDED, CROSS_SETTINGS),
    ('cross_random', PADDED, 'z_loss'),
  ),
)
def test_settings(member, rows):
  checks.parallel(member, rows)


@pytest.mark.parametrize(
  'member',
  each_setting(
    ('random_dense_vanilla', 'one_head one_memory_head shared_kv'),
    ('cross_factorized_dense_random_vanilla', CROSS_SETTINGS),
  ),
)
def test_settings_in_decoding(member):
  checks.decoded(member, (2, 3))


@pytest.mark.parametrize('mesh', [harness.ONE_DEVICE, TPU], ids=['cpu', 'tpu'])
@family.some(
  *('random', 'factorized_random', 'random_random', 'mlp_mixer'),
  *('fixed_patterns', 'cross_random', 'cross_factorized_random'),
)
def test_one_head_in_beam_search(member, mesh):
  """Without a batch, the logits of a step have no dimension but the keys."""
  checks.decoded(member.but(num_heads=1), (2, 3, 4), beam=True, mesh=mesh)


@family.some('random', 'fixed_patterns', 'random_dense_vanilla')
def test_prefix_language_model(member):
  """input_full_attention: all inputs see each other, targets look back."""
  x = family.tokens(np.ones([2, 5]))
  priority = np.array([[0, 0, 0, 3, 4], [0, 0, 2, 3, 4]])
  result = harness.parallel(member, x, None, PREFIX_LM, priority=priority)
  visible = priority[:, :, None] >= priority[:, None, :]
  weights = family.float64(result.weights)
  expected = [
    member.reference(row, weights, causal=True, visible=v).y
    for row, v in zip(x.astype(np.float64), visible, strict=True)
  ]
  harness.assert_close(result.output, np.stack(expected), 'output')


@pytest.mark.parametrize(
  'name, ids',
  [
    ('random', None),
    ('random', PADDED.ids),
    ('random_dense_vanilla', PADDED.ids),
    ('biased_dense', PADDED.ids),
  ],
  ids=['shared-lm', 'shared-padded', 'general-padded', 'biased-padded'],
)
def test_ensemble(name, ids):
  """Each model of an ensemble is a model of its own."""
  member = family.ALL[name].but(**BIAS)
  tokens = np.ones([3, 7], int) if ids is None else ids
  x = family.tokens(tokens)
  result = harness.parallel(member, x, ids, DECODER, ensemble=2)
  for model in range(2):
    weights = {n: w[model] for n, w in family.float64(result.weights).items()}
    expected = reference.rows(
      member.reference, x.astype(np.float64), weights, tokens, causal=True
    )
    harness.assert_close(result.output[model], expected.y, f'model {model}')


@family.some('random', 'conv_relu_conv')
def test_decoding_on_a_tpu(member):
  checks.decoded(member, (2, 3), np.array([2, 1]), LM, mesh=TPU)


@pytest.mark.parametrize('mesh', [harness.ONE_DEVICE, TPU], ids=['cpu', 'tpu'])
@family.some('random', 'factorized_random')
def test_rows_that_are_done_decode_on_beyond_the_table(member, mesh):
  """The host continues until the last row is done: positions pass the end."""
  member = member.of_size(max_length=4)
  checks.decoded(member, (2, 4), np.array([3, 1]), LM, mesh=mesh)


def _rounding(make_layer, stack):
  """The relative error of bfloat16 by gradient; float32 stands for exact."""
  ids = np.ones([4, 64], int)
  ids[:, 30:], ids[1:, 50:], ids[3, 60:] = 2, 3, 0
  stack = dataclasses.replace(
    stack, encoded=harness.Encoded(harness.draw('memory', (4, 64, 128)), ids)
  )

  x = harness.draw('x', (4, 64, 128), 1)

  def weights(name, shape):
    is_matrix = len(shape) > 1 and not name.startswith('random')
    return harness.draw(name, shape, shape[0] ** -0.5 if is_matrix else 1)

  exact, found = (
    harness.parallel(
      make_layer, x, ids, stack, weights=weights, dtype=dtype
    ).gradients
    for dtype in ('float32', 'bfloat16')
  )
  norm = np.linalg.norm
  return {n: norm(found[n] - g) / norm(g) for n, g in exact.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
  'member, t5s',
  [
    (family.D + family.V, transformer_layers.SelfAttention),
    (
      family.across(family.R + family.D + family.V),
      transformer_layers.EncDecAttention,
    ),
  ],
)
def test_bfloat16_rounds_gradients_as_in_t5(member, t5s):
  """W1 as the first matrix of T5's ReLU: tokens at its kink change sides."""
  sizes = {'num_heads': 4, 'key_value_size': 16}
  member = member.of_size(max_length=64, memory_max_length=64)
  ours = _rounding(member.but(packed=True, **sizes), DECODER)
  attention = max(_rounding(lambda: t5s(**sizes), DECODER).values())
  relu = _rounding(
    lambda: transformer_layers.DenseReluDense(hidden_size=64), DECODER
  )['wi/kernel']
  assert ours.pop('dense/W1') < 2 * relu
  assert ours.pop('x') < attention + relu  # partly through W1
  assert max(ours.values()) < 1.5 * attention
