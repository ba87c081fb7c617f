"""mesh_tensorflow's own Synthesizer, reproduced with the same weights.

Its modes are settings here. Its variables have other names, and its R has its
axes in another order.
"""

import functools
from typing import Any

import numpy as np
import pytest
from mesh_tensorflow.transformer import transformer_layers

import synth_mtf
from tests import family, harness
from tests.harness import DECODER, ENCODER

pytestmark = pytest.mark.slow  # the rival builds large tables

HEADS, D_KV, D_MODEL, MAX_LENGTH = 3, 5, 11, 512
PADDED = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]])
PACKED = family.PACKED.ids[:2]

R = functools.partial(synth_mtf.Random, max_length=MAX_LENGTH)
D = functools.partial(
  synth_mtf.Dense,
  max_length=MAX_LENGTH,
  shared_query=True,
  shared_heads=True,
)
V = synth_mtf.DotProduct
MODES: dict[str, dict[str, Any]] = {
  'random': {'synthesizers': [R], 'shared_kv': True},
  'dense_minus': {'synthesizers': [D], 'shared_kv': True},
  'random_plus': {'synthesizers': [R, V], 'mixing': 'sum'},
  'random_plus_alpha': {'synthesizers': [R, V], 'mixing': 'layer_sigmoid'},
  'dense_plus': {'synthesizers': [D, V], 'mixing': 'sum'},
  'dense_plus_alpha': {'synthesizers': [D, V], 'mixing': 'layer_sigmoid'},
}

every_mode = pytest.mark.parametrize('mode', MODES)


X = harness.draw('x', [2, 7, D_MODEL])
SIZES: dict[str, Any] = {'num_heads': HEADS, 'key_value_size': D_KV}

theirs = functools.partial(transformer_layers.Synthesizer, **SIZES)
ours = functools.partial(synth_mtf.SyntheticAttention, **SIZES)


NAMES = {'random/R': 'R', 'dense/W2': 'pi/kernel'}


def converted(name, shape):
  """A weight of our layer, converted from those of theirs."""
  if name == 'random/R':
    return np.swapaxes(harness.draw('R', [shape[1], shape[0], shape[2]]), 0, 1)
  return harness.draw(NAMES.get(name, name), shape)


def as_theirs(gradients):
  """Gradients of our layer by the names and shapes of theirs."""
  found = {NAMES.get(name, name): g for name, g in gradients.items()}
  if 'R' in found:
    found['R'] = np.swapaxes(found['R'], 0, 1)
  return found


@every_mode
@pytest.mark.parametrize(
  'stack, ids',
  [(ENCODER, PADDED), (DECODER, PACKED)],
  ids=['encoder-padded', 'decoder-packed'],
)
def test_training(mode, stack, ids):
  bias = {'relative_attention_type': 'bias'}
  layer = functools.partial(theirs, synthesize_mode=mode, **bias)
  expected = harness.parallel(layer, X, ids, stack)
  layer = functools.partial(
    ours, index_by='row', packed=ids is PACKED, **bias, **MODES[mode]
  )
  found = harness.parallel(layer, X, ids, stack, weights=converted)
  harness.assert_close(found.output, expected.output, 'output')
  harness.assert_close(
    as_theirs(found.gradients), expected.gradients, 'gradient'
  )


@every_mode
def test_decoding(mode):
  x = X[:, :3]
  layer = functools.partial(theirs, synthesize_mode=mode)
  expected, _ = harness.decode(layer, x)
  layer = functools.partial(ours, index_by='row', **MODES[mode])
  found, _ = harness.decode(layer, x, weights=converted)
  harness.assert_close(found, expected, 'decoded')
