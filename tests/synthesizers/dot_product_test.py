"""[DotProduct] is T5's SelfAttention: same variables, same numbers."""

import functools

import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

import synth_mtf
from tests import checks, family, harness
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER, LM

pytestmark = pytest.mark.sampled

BIAS = {'relative_attention_type': 'bias'}
CONTEXTUAL = {'relative_attention_type': 'contextual'}
SETTINGS = {
  'plain': {},
  'bias': BIAS,
  'few_buckets': {**BIAS, 'relative_attention_num_buckets': 6},
  'contextual': CONTEXTUAL,
  'one_head': {'num_heads': 1, **BIAS},
  'one_head_contextual': {'num_heads': 1, **CONTEXTUAL},
  'one_memory_head': {'num_memory_heads': 1},
  'two_memory_heads': {'num_memory_heads': 2, **BIAS},
  'memory_heads_contextual': {'num_memory_heads': 2, **CONTEXTUAL},
  'as_many_memory_heads': {'num_memory_heads': 6},
  'shared_kv': {'shared_kv': True},
  'uncombined': {'combine_dims': False},
  'unfolded': {'fold_scaling_into_initializer': False},
  'z_loss': {'z_loss_coeff': 0.1},
  'extra_kwargs': {'attention_kwargs': {'float32_logits': False}},
}


def both(settings, run, *arguments, packed=False, **changes):
  """What the host's layer computes, and what ours does."""
  settings = {'num_heads': 6, 'key_value_size': 5, **settings}
  makers = (
    functools.partial(transformer_layers.SelfAttention, **settings),
    functools.partial(synth_mtf.SyntheticAttention, packed=packed, **settings),
  )
  return [run(make, *arguments, **changes) for make in makers]


@pytest.mark.parametrize(
  'name, stack, rows',
  family.one_in(
    3,
    [
      *((name, DECODER, PACKED) for name in SETTINGS),
      # These differ between encoder and decoder.
      *((n, ENCODER, PADDED) for n in ('bias', 'few_buckets', 'contextual')),
    ],
  ),
)
def test_training(name, stack, rows):
  x = family.tokens(rows.ids)
  theirs, ours = both(
    SETTINGS[name], harness.parallel, x, rows.ids, stack, packed=rows.packed
  )
  checks.same(ours, theirs)


@pytest.mark.parametrize(
  'stack, ids, changes',
  [
    (LM, None, {}),
    (ENCODER, PADDED.ids, {'mode': 'eval'}),
    (ENCODER, PADDED.ids, {'mode': 'infer'}),
    (DECODER, PADDED.ids, {'dtype': 'bfloat16'}),
  ],
  ids=['language model', 'evaluation', 'inference', 'bfloat16'],
)
def test_modes(stack, ids, changes):
  x = family.tokens(PADDED.ids)
  tolerance = harness.TOLERANCE[changes.get('dtype', 'float32')]
  theirs, ours = both(
    SETTINGS['bias'], harness.parallel, x, ids, stack, **changes
  )
  checks.same(ours, theirs, tolerance)


@pytest.mark.parametrize(
  'name, shape, start, changes',
  [
    ('one_head', [3, 4], np.array([3, 2, 2]), {}),
    ('memory_heads_contextual', [3, 4], np.array([3, 2, 2]), {}),
    ('contextual', [2, 2, 3], None, {'beam': True}),
    ('uncombined', [2, 2, 3], None, {'beam': True}),
  ],
)
def test_decoding(name, shape, start, changes):
  x = family.tokens(np.ones(shape))
  (theirs, _), (ours, _) = both(
    SETTINGS[name], harness.decode, x, start, **changes
  )
  given = np.isnan(theirs)
  assert given.any() == (start is not None)
  harness.assert_close(ours[~given], theirs[~given], 'decoded')


def test_layers_share_a_relative_bias():
  settings = {'relative_attention_type': 'bias_shared'}

  def two_layers(make, *arguments):
    return harness.parallel([make, make], *arguments)

  x = family.tokens(PADDED.ids)
  theirs, ours = both(settings, two_layers, x, PADDED.ids, ENCODER)
  checks.same(ours, theirs)
  biases = [n for n in ours.weights if 'relative_attention_bias' in n]
  assert biases == ['layer_000/relative_attention_bias']


@pytest.mark.parametrize('packed', [False, True], ids=['shared', 'general'])
def test_frozen_queries_and_keys_are_kept_and_get_no_gradient(packed):
  member = family.VARIANTS['frozen_vanilla'].but(packed=packed)
  x = family.tokens(PADDED.ids)
  frozen = harness.parallel(member, x, PADDED.ids)
  assert sorted(frozen.weights) == ['k', 'o', 'q', 'v']
  assert sorted(frozen.trainable) == ['o', 'v']
  assert set(frozen.gradients) == {'x', 'o', 'v'}
  # The tokens get all of their gradient, also that through q and k.
  usual = harness.parallel(family.V.but(packed=packed), x, PADDED.ids)
  for name, gradient in frozen.gradients.items():
    np.testing.assert_allclose(gradient, usual.gradients[name], 1e-5, 1e-6)
