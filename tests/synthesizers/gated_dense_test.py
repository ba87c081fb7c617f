"""GLU: a gated hidden layer."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import ENCODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])


def layer(**settings):
  function = functools.partial(synth_mtf.GatedDense, **settings)
  return family.Member((function,), ()).maker


def test_variables():
  x = family.tokens(np.ones([2, 7]))
  weights = harness.parallel(layer(max_length=13)(), x).weights
  assert {n: w.shape for n, w in weights.items()} == {
    'gated_dense/W1': (11, 3, 5),
    'gated_dense/Wg': (11, 3, 5),
    'gated_dense/W2': (3, 5, 13),
    'v': (11, 15),
    'o': (15, 11),
  }


@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_tiled(packed):
  checks.parallel(
    layer(max_length=13, tile_length=3, key_value_size=2)(packed=packed),
    reference.Layer([reference.gated(3)], family.HEADS, family.D_KV),
    PACKED if packed else np.minimum(PACKED, 1),
    ENCODER,
  )


def test_initial_logits_have_unit_variance():
  drawn = harness.initial(
    layer(max_length=61)(key_value_size=64), family.tokens(np.ones([2, 7]))
  )
  x = np.random.RandomState(0).standard_normal([500, family.D_MODEL])
  linear, gate = (
    np.einsum('id,dhk->hik', x, drawn[f'gated_dense/{n}']) for n in ('W1', 'Wg')
  )
  hidden = linear / (1 + np.exp(-gate))
  logits = np.einsum('hik,hkn->hin', hidden, drawn['gated_dense/W2'])
  assert 0.8 < logits.std() < 1.2


def test_a_width_below_1_is_refused():
  with pytest.raises(
    ConfigurationError,
    match=r'GatedDense\.key_value_size = 0: expected at least 1',
  ):
    synth_mtf.GatedDense(key_value_size=0)
