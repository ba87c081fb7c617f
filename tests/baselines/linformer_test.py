"""Linformer against NumPy."""

import numpy as np
import pytest

from synth_mtf import Linformer
from synth_mtf.errors import ConfigurationError
from tests import harness

BATCH, HEADS, D_KV, LENGTH, D_MODEL, MAX_LENGTH, K = 2, 3, 5, 7, 11, 13, 4
TOKENS = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], np.int32)


def make(**settings):
  settings = {
    'num_heads': HEADS,
    'key_value_size': D_KV,
    'projected_length': K,
    'max_length': MAX_LENGTH,
    'packed': False,
    **settings,
  }
  return lambda: Linformer(**settings)


def linformer(x, tokens, w):
  """softmax(Q (E K)^T) (F V) O, written out in float64."""
  w = {name: value.astype(np.float64) for name, value in w.items()}
  x = x * tokens[..., None]

  def heads(name):
    return (x @ w[name]).reshape(*x.shape[:2], HEADS, D_KV)

  q, k, v = heads('q'), heads('k'), heads('v')
  length = x.shape[1]
  ek = np.einsum('hpm,bmhd->bphd', w['E'][..., :length], k)
  fv = np.einsum('hpm,bmhd->bphd', w['F'][..., :length], v)
  logits = np.einsum('blhd,bphd->bhlp', q, ek)
  weights = np.exp(logits - logits.max(-1, keepdims=True))
  weights /= weights.sum(-1, keepdims=True)
  y = np.einsum('bhlp,bphd->blhd', weights, fv)
  y = y.reshape(*x.shape[:2], HEADS * D_KV) @ w['o']
  return y * tokens[..., None]


@pytest.mark.parametrize('mode', ['train', 'eval', 'infer'])
def test_is_the_formula(mode):
  x = harness.draw('x', (BATCH, LENGTH, D_MODEL))
  got = harness.parallel(make(), x, TOKENS, mode=mode)
  expected = linformer(x, TOKENS, got.weights)
  scale = np.abs(expected).max()
  assert np.abs(got.output - expected).max() < 1e-5 * scale


def test_padding_changes_nothing():
  x = harness.draw('x', (BATCH, LENGTH, D_MODEL))
  full = harness.parallel(make(), x, TOKENS, mode='eval').output
  cut = harness.parallel(make(), x[:1, :5], TOKENS[:1, :5], mode='eval').output
  np.testing.assert_allclose(full[:1, :5], cut, atol=1e-5)


def test_its_variables():
  x = harness.draw('x', (BATCH, LENGTH, D_MODEL))
  got = harness.parallel(make(), x, TOKENS)
  shapes = {name: w.shape for name, w in got.weights.items()}
  assert shapes == {
    'q': (D_MODEL, HEADS * D_KV),
    'k': (D_MODEL, HEADS * D_KV),
    'v': (D_MODEL, HEADS * D_KV),
    'o': (HEADS * D_KV, D_MODEL),
    'E': (HEADS, K, MAX_LENGTH),
    'F': (HEADS, K, MAX_LENGTH),
  }


@pytest.mark.parametrize(
  ('settings', 'stack', 'message'),
  [
    ({}, harness.DECODER, 'works in an encoder only'),
    ({'packed': True}, harness.ENCODER, 'mesh_train_dataset_fn.pack = False'),
    ({'max_length': 6}, harness.ENCODER, 'Linformer.max_length >= 7'),
    ({'projected_length': 0}, harness.ENCODER, 'expected at least 1'),
    (
      {'relative_attention_type': 'bias'},
      harness.ENCODER,
      'no relative position bias',
    ),
  ],
)
def test_refuses_what_it_cannot_do(settings, stack, message):
  x = harness.draw('x', (BATCH, LENGTH, D_MODEL))
  with pytest.raises(ConfigurationError, match=message):
    harness.parallel(make(**settings), x, TOKENS, stack=stack)
