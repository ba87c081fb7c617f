"""FR: tables of low rank."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])
SIZE = 7


def layer(**settings):
  function = functools.partial(synth_mtf.FactorizedRandom, **settings)
  return family.Member((function,), ()).maker


def test_variables():
  x = family.tokens(np.ones([2, 7]))
  weights = harness.parallel(layer(max_length=13)(), x).weights
  assert {n: w.shape for n, w in weights.items()} == {
    'factorized_random/R1': (3, 13, 8),
    'factorized_random/R2': (3, 13, 8),
    'v': (11, 15),
    'o': (15, 11),
  }


@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_of_full_rank_it_is_random(packed):
  """R1 = R and R2 = 1: R1 R2^T = R."""
  x = family.tokens(PACKED)

  def weights(name, shape):
    if name == 'factorized_random/R2':
      return np.broadcast_to(np.eye(SIZE), shape)
    return harness.draw(name.replace('factorized_random/R1', 'random/R'), shape)

  ids = PACKED if packed else np.minimum(PACKED, 1)
  factorized = harness.parallel(
    layer(max_length=SIZE, rank=SIZE)(packed=packed),
    x,
    ids,
    DECODER,
    weights=weights,
  )
  table = functools.partial(synth_mtf.Random, max_length=SIZE)
  random = harness.parallel(
    family.Member((table,), ()).maker(packed=packed), x, ids, DECODER
  )
  harness.assert_close(factorized.output, random.output, 'output')
  harness.assert_close(
    factorized.gradients['factorized_random/R1'],
    random.gradients['random/R'],
    'gradient',
  )


@pytest.mark.parametrize('rank', [1, 17])
@pytest.mark.parametrize('columns', [None, 3])
def test_rank_and_tiles(rank, columns):
  checks.parallel(
    layer(max_length=13, rank=rank, tile_length=columns)(packed=True),
    reference.Layer(
      [reference.factorized_random(13, rank, columns)],
      family.HEADS,
      family.D_KV,
    ),
    PACKED,
    DECODER,
  )


def test_the_initial_product_has_unit_variance():
  x = family.tokens(np.ones([2, 7]))
  drawn = harness.initial(layer(max_length=61)(), x)
  product = np.einsum(
    'hik,hjk->hij', drawn['factorized_random/R1'], drawn['factorized_random/R2']
  )
  assert 0.8 < product.std() < 1.2


def test_a_rank_below_1_is_refused():
  with pytest.raises(
    ConfigurationError, match=r'FactorizedRandom\.rank = 0: expected at least 1'
  ):
    synth_mtf.FactorizedRandom(rank=0)
