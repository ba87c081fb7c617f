"""D: a two-layer network makes each token's row."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])


def layer(**settings):
  function = functools.partial(synth_mtf.Dense, **settings)
  return family.Member((function,), ()).maker


def test_variables():
  x = family.tokens(np.ones([2, 7]))
  shapes = {
    heads: {
      n: w.shape
      for n, w in harness.parallel(
        layer(max_length=13)(num_heads=heads), x
      ).weights.items()
    }
    for heads in (1, 3)
  }
  assert shapes == {
    1: {
      'dense/W1': (11, 5),
      'dense/W2': (5, 13),
      'v': (11, 5),
      'o': (5, 11),
    },
    3: {
      'dense/W1': (11, 3, 5),
      'dense/W2': (3, 5, 13),
      'v': (11, 15),
      'o': (15, 11),
    },
  }


@pytest.mark.parametrize('size', [7, 13], ids=['whole', 'slice'])
@pytest.mark.parametrize('columns', [2, 3])
@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_tiled(size, columns, packed):
  checks.parallel(
    layer(max_length=size, tile_length=columns)(packed=packed),
    reference.Layer([reference.dense(columns)], family.HEADS, family.D_KV),
    PACKED if packed else np.minimum(PACKED, 1),
    ENCODER,
  )


def test_tiled_in_decoding():
  make = layer(max_length=13, tile_length=3)()
  x = family.tokens(np.ones([2, 5]))
  parallel = harness.parallel(make, x, stack=DECODER, mode='eval').output
  harness.assert_close(harness.decode(make, x), parallel, 'token by token')


def test_a_width_of_its_own():
  result = checks.parallel(
    layer(max_length=13, key_value_size=2)(),
    reference.Layer([reference.dense(13)], family.HEADS, family.D_KV),
    np.minimum(PACKED, 1),
    DECODER,
  )
  assert result.weights['dense/W1'].shape == (11, 3, 2)
  assert result.weights['dense/W2'].shape == (3, 2, 13)


def test_initial_logits_have_unit_variance():
  drawn = harness.initial(
    layer(max_length=61)(key_value_size=64), family.tokens(np.ones([2, 7]))
  )
  x = np.random.RandomState(0).standard_normal([500, family.D_MODEL])
  hidden = np.maximum(np.einsum('id,dhk->hik', x, drawn['dense/W1']), 0)
  logits = np.einsum('hik,hkn->hin', hidden, drawn['dense/W2'])
  assert 0.8 < logits.std() < 1.2


def test_sizes_that_do_not_fit():
  with pytest.raises(
    ConfigurationError, match=r'Dense\.key_value_size = 0: expected at least 1'
  ):
    synth_mtf.Dense(key_value_size=0)
  with pytest.raises(
    ConfigurationError,
    match=r'length 7 exceeds max_length 5 of the Dense table; set '
    r'Dense\.max_length >= 7',
  ):
    harness.parallel(layer(max_length=5)(), family.tokens(np.ones([2, 7])))
