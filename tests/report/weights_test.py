"""Weights for a page: how near they come back, and how small they are."""

import base64
import dataclasses
import zlib

import numpy as np
import pytest

from synth_mtf.errors import UserError
from synth_mtf.report import weights
from tests.report import models

PLENTY = 10**9


def unpacked(block, heads, signed=False):
  """What the viewer makes of a block: [heads, queries, memory]."""
  content = zlib.decompress(base64.b64decode(block.text))
  rows = heads * block.queries
  scales = np.frombuffer(content, '<f4', rows)
  codes = np.frombuffer(content, 'i1' if signed else 'u1', offset=4 * rows)
  shape = (heads, block.queries, block.memory)
  return scales.reshape(shape[:2])[..., np.newaxis] * codes.reshape(shape)


def blocks_of(packed):
  return {block.name: block for block in packed.blocks}


@pytest.fixture
def model():
  return models.attention('Syn (R+V)', ['R', 'V'])


@pytest.mark.parametrize('stack', ['encoder', 'decoder', 'cross'])
def test_a_weight_is_off_by_half_a_code_at_most(model, stack):
  blocks = blocks_of(weights.pack([model], PLENTY))
  for layer in range(3):
    for example in range(4):
      exact = model.weights(stack, example)[layer]
      found = unpacked(blocks[f'0-{stack}-{layer}-{example}'], 5)
      half = exact.max(axis=-1, keepdims=True) / 510
      assert found.shape == exact.shape
      assert (abs(found - exact) <= half * 1.0001).all()
      assert (found[exact == 0] == 0).all()


def test_negative_weights_come_back(model):
  signed = model.stacks['encoder'].logits
  stack = dataclasses.replace(model.stacks['encoder'], weights=signed)
  model = dataclasses.replace(model, stacks={'encoder': stack})
  packed = weights.pack([model], PLENTY)
  assert packed.index[0]['stacks']['encoder']['signed']
  exact = model.weights('encoder', 2)[1]
  found = unpacked(blocks_of(packed)['0-encoder-1-2'], 5, signed=True)
  half = abs(exact).max(axis=-1, keepdims=True) / 254
  assert (abs(found - exact) <= half * 1.0001).all()
  assert (found < 0).any()


def test_what_examples_share_is_there_once():
  model = models.attention('Syn (R)', ['R'], shared=True)
  packed = weights.pack([model], PLENTY)
  names = {f'0-{stack}-{i}-0' for stack in model.stacks for i in range(3)}
  assert set(blocks_of(packed)) == names
  assert packed.index[0]['stacks']['decoder']['blocks'] == 1
  found = unpacked(blocks_of(packed)['0-decoder-2-0'], 5)
  np.testing.assert_allclose(
    found, model.stacks['decoder'].weights[2, 0], atol=1 / 500
  )


def test_the_index_says_what_there_is(model):
  other = models.attention('T5 (V)', ['V'], layers=2)
  first, second = weights.pack([model, other], PLENTY).index
  assert (first['label'], first['step']) == ('Syn (R+V)', 100)
  assert first['examples'][1]['encoder'] == models.ENCODER[1].split()
  assert first['stacks']['cross']['functions'] == ['R', 'V']
  np.testing.assert_allclose(
    first['stacks']['cross']['alpha'],
    model.stacks['cross'].alpha,
    atol=1e-4,
  )
  assert second['stacks']['cross']['alpha'] is None
  assert second['stacks']['encoder']['layers'] == 2


def test_where_bytes_are_few_the_ends_of_examples_are_left_out():
  model = models.attention('T5 (V)', ['V'], lengths=70)
  everything = weights.pack([model], PLENTY)
  assert (everything.length, everything.whole) == (70, True)
  size = sum(len(block.text) for block in everything.blocks)
  less = weights.pack([model], size * 6 // 10)
  assert (less.length, less.whole) == (48, False)
  assert sum(len(block.text) for block in less.blocks) <= size * 6 // 10
  assert {len(e['encoder']) for e in less.index[0]['examples']} == {48}
  found = unpacked(blocks_of(less)['0-encoder-0-0'], 5)
  exact = model.weights('encoder', 0)[0, :, :48, :48]
  np.testing.assert_allclose(found, exact, atol=1 / 500)


def test_what_cannot_be_made_small_enough_is_refused(model):
  with pytest.raises(UserError, match='give fewer models or fewer examples'):
    weights.pack([model], 1000)


@pytest.mark.slow
def test_the_size_of_a_base_model():
  """12 layers of 12 heads, 4 examples of 64 tokens, three stacks."""
  model = models.attention('T5 (V)', ['V'], 12, 12, lengths=64)
  packed = weights.pack([model], PLENTY)
  assert packed.index[0]['stacks']['cross']['blocks'] == 4
  assert sum(len(block.text) for block in packed.blocks) < 9e6
