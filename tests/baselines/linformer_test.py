"""Linformer against NumPy."""

from typing import Any

import numpy as np
import pytest

from synth_mtf import Linformer
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.layer.refusals_test import REFUSED

BATCH, HEADS, D_KV, LENGTH, D_MODEL, MAX_LENGTH, K = 2, 3, 5, 7, 11, 13, 4
TOKENS = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], np.int32)
X = harness.draw('x', (BATCH, LENGTH, D_MODEL))


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


def linformer(x, w):
  """softmax(Q (E K)^T) (F V) O, written out; and the logits."""
  tokens = TOKENS[..., None]
  x = x * tokens

  def heads(name):
    return (x @ w[name]).reshape(*x.shape[:2], HEADS, D_KV)

  q, k, v = heads('q'), heads('k'), heads('v')
  length = x.shape[1]
  ek = np.einsum('hpm,bmhd->bphd', w['E'][..., :length], k)
  fv = np.einsum('hpm,bmhd->bphd', w['F'][..., :length], v)
  logits = np.einsum('blhd,bphd->bhlp', q, ek)
  weights = reference.softmax(logits, np.ones(logits.shape, bool))
  y = np.einsum('bhlp,bphd->blhd', weights, fv)
  return y.reshape(*x.shape[:2], HEADS * D_KV) @ w['o'] * tokens, logits


@pytest.mark.parametrize('mode', ['train', 'eval', 'infer'])
def test_is_the_formula(mode):
  got = harness.parallel(make(), X, TOKENS, mode=mode)
  at = {'x': X.astype(np.float64), **family.float64(got.weights)}
  harness.assert_close(got.output, linformer(at['x'], at)[0], 'output')
  cotangent = harness.draw('cotangent', X.shape)
  if mode == 'train':
    checks.gradients(
      got.gradients,
      reference.probes(
        lambda at: (linformer(at['x'], at)[0] * cotangent).sum(), at
      ),
      1e-5,
    )


def test_in_bfloat16():
  """Logits are of float32 all the same, unless gin says otherwise."""
  exact = harness.parallel(make(), X, TOKENS, mode='eval').output
  errors = {}
  for float32 in (True, False):
    rounded = harness.parallel(
      make(attention_kwargs={'float32_logits': float32}),
      X,
      TOKENS,
      mode='eval',
      dtype='bfloat16',
    ).output
    harness.assert_close(rounded, exact, 'bfloat16', 5e-2)
    errors[float32] = np.abs(rounded - exact).mean()
  assert errors[True] != errors[False]


def test_padding_changes_nothing():
  full = harness.parallel(
    make(), X, TOKENS, mode='eval', host_masks=False
  ).output
  cut = harness.parallel(make(), X[:1, :5], TOKENS[:1, :5], mode='eval').output
  np.testing.assert_allclose(full[:1, :5], cut, atol=1e-5)


def test_z_loss_is_that_of_its_own_softmax():
  got = harness.parallel(make(z_loss_coeff=0.1), X, TOKENS)
  weights = family.float64(got.weights)
  _, logits = linformer(X.astype(np.float64), weights)
  log_z = np.log(np.exp(logits).sum(-1)) * TOKENS[:, None]
  np.testing.assert_allclose(got.losses, [0.1 * (log_z**2).mean()], rtol=1e-5)


@pytest.mark.parametrize('shared', [True, False])
def test_dropout_is_one_decision_for_all_queries_unless_gin_says_otherwise(
  shared,
):
  """With F of one projected position a channel, Y spells out the weights."""
  settings: dict[str, Any] = {'num_heads': 1, 'key_value_size': K}
  if not shared:
    settings['attention_kwargs'] = {'dropout_broadcast_dims': []}

  def weights(name, shape):
    if name == 'v':
      return np.eye(*shape)
    if name == 'o':
      return np.eye(*shape)
    if name == 'F':
      return np.eye(*shape)
    return harness.draw(name, shape)

  # The first K tokens are one channel each, all others are 0.
  x = np.zeros([1, LENGTH, D_MODEL], np.float32)
  x[0, np.arange(K), np.arange(K)] = 1
  ones = np.ones([1, LENGTH], int)
  exact, drawn = (
    harness.parallel(
      make(dropout_rate=rate, **settings),
      x,
      ones,
      weights=weights,
      runs=runs,
    ).output
    for rate, runs in ((0.0, 1), (0.25, 50))
  )
  factors = drawn[..., :K] / exact[..., :K]  # [runs, 1, length, K]
  kept = factors > 0.5
  np.testing.assert_allclose(factors[kept], 1 / 0.75, rtol=1e-3)
  np.testing.assert_allclose(factors[~kept], 0, atol=1e-3)
  assert (kept == kept[:, :, :1]).all() == shared
  assert abs(kept.mean() - 0.75) < 0.15


def test_its_variables():
  assert harness.variables(make(), X) == {
    'q': (D_MODEL, HEADS * D_KV),
    'k': (D_MODEL, HEADS * D_KV),
    'v': (D_MODEL, HEADS * D_KV),
    'o': (HEADS * D_KV, D_MODEL),
    'E': (HEADS, K, MAX_LENGTH),
    'F': (HEADS, K, MAX_LENGTH),
  }


def test_one_head_and_its_defaults():
  found = harness.variables(make(num_heads=1, max_length=None), X)
  assert found['E'] == (K, 512)
  assert Linformer(packed=False).projected_dim.size == 32
  assert Linformer().label == 'Linformer'


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
  with pytest.raises(ConfigurationError, match=message):
    harness.variables(make(**settings), X, sequence_id=TOKENS, stack=stack)


@pytest.mark.parametrize('settings, message', REFUSED, ids=str)
def test_refuses_what_the_layer_refuses(settings, message):
  with pytest.raises(
    ConfigurationError, match=message.replace('SyntheticAttention', 'Linformer')
  ):
    make(**settings)()


def test_an_argument_that_nobody_has():
  with pytest.raises(
    ConfigurationError,
    match=r"Linformer\.projectd_length.*did you mean 'projected_length'",
  ):
    make(projectd_length=3)()
