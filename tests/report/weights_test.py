"""Packed weights: how exact they are, and how small."""

import base64
import dataclasses
import zlib

import numpy as np
import pytest

from synth_mtf.attention.file import Array
from synth_mtf.report import weights
from tests.attention.made import SENTENCES, random_attention


def unpack(stack, layer, example) -> Array:
  """What the viewer makes of a block: [heads, queries, memory]."""
  block = stack['blocks'][layer][example]
  content = zlib.decompress(base64.b64decode(block['data']))
  shape = (stack['heads'], block['queries'], block['memory'])
  rows = shape[0] * shape[1]
  scales = np.frombuffer(content, '<f4', rows)
  dtype = 'i1' if stack['signed'] else 'u1'
  codes = np.frombuffer(content, dtype, offset=4 * rows)
  return scales.reshape(shape[:2])[..., np.newaxis] * codes.reshape(shape)


@pytest.fixture
def model():
  return random_attention('Syn (R+V)', 'RV')


@pytest.mark.parametrize('signed', [False, True])
@pytest.mark.parametrize('stack', ['encoder', 'decoder', 'cross'])
def test_a_weight_is_off_by_half_a_code_at_most(model, stack, signed):
  if signed:
    one = model.stacks[stack]
    one.logits[0] = abs(one.logits[0])  # a layer may have no negative one
    one = dataclasses.replace(one, weights=one.logits)
    model = dataclasses.replace(model, stacks={stack: one})
  model.stacks[stack].weights[0, ..., 0, :] = 0
  (packed,) = weights.pack([model])
  assert packed['stacks'][stack]['signed'] == signed
  for layer in range(3):
    for example in range(4):
      exact = model.weights(stack, example)[layer]
      found = unpack(packed['stacks'][stack], layer, example)
      half = abs(exact).max(axis=-1, keepdims=True) / (254 if signed else 510)
      assert found.shape == exact.shape
      assert (abs(found - exact) <= half * 1.0001).all()
      assert (found[exact == 0] == 0).all()
      assert (found < 0).any() == (exact < 0).any()


def test_what_is_said_of_the_models(model):
  other = random_attention('T5 (V)', 'V', layers=2)
  first, second = weights.pack([model, other])
  assert (first['label'], first['step']) == ('Syn (R+V)', 100)
  assert first['run'] == model.run
  assert first['examples'][1]['encoder'] == SENTENCES['encoder'][1].split()
  cross = first['stacks']['cross']
  assert cross['functions'] == ['R', 'V']
  alpha = model.stacks['cross'].alpha
  np.testing.assert_allclose(cross['alpha'], alpha, atol=1e-4)
  assert second['stacks']['cross']['alpha'] is None
  assert len(second['stacks']['encoder']['blocks']) == 2


def test_the_ends_of_long_examples_are_left_out(monkeypatch):
  monkeypatch.setattr(weights, 'MOST_TOKENS', 48)
  model = random_attention('T5 (V)', 'V', length=70)
  (packed,) = weights.pack([model])
  assert {len(e['encoder']) for e in packed['examples']} == {48}
  np.testing.assert_allclose(
    unpack(packed['stacks']['encoder'], 0, 0),
    model.weights('encoder', 0)[0, :, :48, :48],
    atol=1 / 500,
  )
