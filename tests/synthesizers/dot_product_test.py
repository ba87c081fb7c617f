"""[DotProduct] is T5's SelfAttention: same variables, same numbers."""

import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

import synth_mtf
from tests import harness
from tests.harness import DECODER, ENCODER, LM

PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0]])
PADDED = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]])
SETTINGS = {
  'plain': {},
  'bias': {'relative_attention_type': 'bias'},
  'few_buckets': {
    'relative_attention_type': 'bias',
    'relative_attention_num_buckets': 6,
  },
  'contextual': {'relative_attention_type': 'contextual'},
  'one_head': {'num_heads': 1, 'relative_attention_type': 'bias'},
  'one_head_contextual': {
    'num_heads': 1,
    'relative_attention_type': 'contextual',
  },
  'one_memory_head': {'num_memory_heads': 1},
  'two_memory_heads': {
    'num_memory_heads': 2,
    'relative_attention_type': 'bias',
  },
  'memory_heads_contextual': {
    'num_memory_heads': 2,
    'relative_attention_type': 'contextual',
  },
  'as_many_memory_heads': {'num_memory_heads': 6},
  'shared_kv': {'shared_kv': True},
  'uncombined': {'combine_dims': False},
  'unfolded': {'fold_scaling_into_initializer': False},
  'z_loss': {'z_loss_coeff': 0.1},
  'extra_kwargs': {'attention_kwargs': {'float32_logits': False}},
}


def both(settings, packed=False):
  """Makers of the host's layer and of ours."""
  settings = {'num_heads': 6, 'key_value_size': 5, **settings}
  return (
    lambda: transformer_layers.SelfAttention(**settings),
    lambda: synth_mtf.SyntheticAttention(
      synthesizers=[synth_mtf.DotProduct], packed=packed, **settings
    ),
  )


def assert_same(theirs, ours, tolerance=1e-5):
  assert {n: w.shape for n, w in ours.weights.items()} == {
    n: w.shape for n, w in theirs.weights.items()
  }
  assert set(ours.trainable) == set(theirs.trainable)
  harness.assert_close(ours.output, theirs.output, 'output', tolerance)
  harness.assert_close(ours.gradients, theirs.gradients, 'gradient', tolerance)
  harness.assert_close(
    np.array(ours.losses), np.array(theirs.losses), 'losses', tolerance
  )


# What is another thing in an encoder than in a decoder.
BY_STACK = ['bias', 'few_buckets', 'contextual']


@pytest.mark.parametrize(
  'name, stack, ids',
  [
    *(
      pytest.param(name, DECODER, PACKED, id=f'{name}-decoder-packed')
      for name in SETTINGS
    ),
    *(
      pytest.param(
        name,
        ENCODER,
        PADDED,
        id=f'{name}-encoder-padded',
        marks=[] if name in BY_STACK else pytest.mark.slow,
      )
      for name in SETTINGS
    ),
  ],
)
def test_training(name, stack, ids):
  x = harness.draw('x', [2, 7, 11])
  theirs, ours = (
    harness.parallel(make, x, ids, stack)
    for make in both(SETTINGS[name], packed=ids is PACKED)
  )
  assert_same(theirs, ours)


def test_language_model():
  x = harness.draw('x', [2, 7, 11])
  theirs, ours = (
    harness.parallel(make, x, stack=LM) for make in both(SETTINGS['bias'])
  )
  assert_same(theirs, ours)


@pytest.mark.parametrize('name', ['one_head', 'memory_heads_contextual'])
def test_greedy_decoding(name):
  x = harness.draw('x', [3, 4, 11])
  theirs, ours = (
    harness.decode(make, x, np.array([3, 2, 2])).output
    for make in both(SETTINGS[name])
  )
  given = np.isnan(theirs)
  harness.assert_close(ours[~given], theirs[~given], 'decoded')


@pytest.mark.parametrize('name', ['contextual', 'uncombined'])
def test_beam_decoding(name):
  x = harness.draw('x', [2, 2, 3, 11])
  theirs, ours = (
    harness.decode(make, x, beam=True).output for make in both(SETTINGS[name])
  )
  harness.assert_close(ours, theirs, 'decoded')


@pytest.mark.parametrize('mode', ['eval', 'infer'])
def test_evaluation(mode):
  x = harness.draw('x', [2, 7, 11])
  theirs, ours = (
    harness.parallel(make, x, PADDED, ENCODER, mode=mode)
    for make in both(SETTINGS['bias'])
  )
  assert_same(theirs, ours)


def test_bfloat16():
  x = harness.draw('x', [2, 7, 11])
  theirs, ours = (
    harness.parallel(make, x, PADDED, DECODER, dtype='bfloat16')
    for make in both(SETTINGS['bias'])
  )
  assert_same(theirs, ours, harness.TOLERANCE['bfloat16'])


def test_layers_share_a_relative_bias():
  x = harness.draw('x', [2, 7, 11])
  theirs, ours = (
    harness.parallel([make, make], x, PADDED, ENCODER)
    for make in both({'relative_attention_type': 'bias_shared'})
  )
  assert_same(theirs, ours)
  biases = [n for n in ours.weights if 'relative_attention_bias' in n]
  assert biases == ['layer_000/relative_attention_bias']
