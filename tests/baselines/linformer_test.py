"""Linformer against NumPy."""

import numpy as np
import pytest

from synth_mtf import Linformer
from synth_mtf.errors import ConfigurationError
from synth_mtf.layer import base
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER

HEADS, D_KV, D_MODEL, MAX_LENGTH, K = 3, 5, 11, 13, 4
TOKENS = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], np.int32)
X = harness.draw('x', [2, 7, D_MODEL])


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
  """softmax(Q (E K)^T) (F V) O, and log Z."""
  tokens = TOKENS[..., None]
  x = x * tokens

  def heads(name):
    return (x @ w[name]).reshape(*x.shape[:2], HEADS, D_KV)

  ek, fv = (
    np.einsum('hpm,bmhd->bphd', w[name][..., : x.shape[1]], heads(memory))
    for name, memory in (('E', 'k'), ('F', 'v'))
  )
  logits = np.einsum('blhd,bphd->bhlp', heads('q'), ek)
  weights, log_z = reference.softmax(logits, np.ones(logits.shape, bool))
  y = np.einsum('bhlp,bphd->blhd', weights, fv)
  return y.reshape(*x.shape[:2], HEADS * D_KV) @ w['o'] * tokens, log_z


@pytest.mark.parametrize('mode', ['train', 'eval', 'infer'])
def test_is_the_formula(mode):
  got = harness.parallel(make(), X, TOKENS, mode=mode)
  at = {'x': X.astype(np.float64), **family.float64(got.weights)}
  harness.assert_close(got.output, linformer(at['x'], at)[0], 'output')
  cotangent = harness.draw('cotangent', X.shape)
  if mode == 'train':
    checks.gradients(
      got.gradients,
      lambda at: (linformer(at['x'], at)[0] * cotangent).sum(),
      at,
    )


@pytest.mark.parametrize('skips_padding', [True, False])
def test_padding_changes_nothing(monkeypatch, skips_padding):
  if not skips_padding:  # as on a TPU, where products see padding
    monkeypatch.setattr(base, 'mask', lambda *_: [])
  full = harness.parallel(
    make(), X, TOKENS, mode='eval', mask_padding=False
  ).output
  cut = harness.parallel(make(), X[:1, :5], TOKENS[:1, :5], mode='eval').output
  np.testing.assert_allclose(full[:1, :5], cut, atol=1e-5)


def test_z_loss_is_that_of_its_own_softmax():
  got = harness.parallel(make(z_loss_coeff=0.1), X, TOKENS)
  _, log_z = linformer(X.astype(np.float64), family.float64(got.weights))
  log_z *= TOKENS[:, None]
  np.testing.assert_allclose(got.losses, [0.1 * (log_z**2).mean()], rtol=1e-5)


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
    ({}, DECODER, 'works in an encoder only'),
    ({'packed': True}, ENCODER, 'mesh_train_dataset_fn.pack = False'),
    ({'max_length': 6}, ENCODER, 'Linformer.max_length >= 7'),
    ({'projected_length': 0}, ENCODER, 'expected at least 1'),
    ({'max_length': 0}, ENCODER, 'max_length = 0: expected at least 1'),
    (
      {'relative_attention_type': 'bias'},
      ENCODER,
      r"relative_attention_type = 'bias': expected one of \[None\]",
    ),
  ],
)
def test_refuses_what_it_cannot_do(settings, stack, message):
  with pytest.raises(ConfigurationError, match=message):
    harness.variables(make(**settings), X, sequence_id=TOKENS, stack=stack)


def test_initial_projections_keep_the_variance_of_keys_and_values():
  """E K sums over N keys, so that the entries of E have variance 1 / N."""
  n = 400
  layer = make(max_length=n)
  weights = harness.parallel(layer, X, TOKENS, weights=None).weights
  for name in ('E', 'F'):
    assert weights[name].std() == pytest.approx(n**-0.5, rel=0.05)
