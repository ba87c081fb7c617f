"""FR: tables of low rank."""

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness
from tests.harness import DECODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])
SIZE = 7


def test_variables():
  x = family.tokens(PACKED)
  assert harness.variables(family.FR.maker(), x) == {
    'factorized_random/R1': (3, 13, 4),
    'factorized_random/R2': (3, 13, 4),
    'v': (11, 15),
    'o': (15, 11),
  }


def test_the_rank_is_that_of_the_paper():
  assert synth_mtf.FactorizedRandom().rank == 8


@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_of_full_rank_it_is_random(packed):
  """R1 = R and R2 = 1: R1 R2^T = R."""

  def weights(name, shape):
    if name == 'factorized_random/R2':
      return np.broadcast_to(np.eye(SIZE), shape)
    return harness.draw(name.replace('factorized_random/R1', 'random/R'), shape)

  ids = PACKED if packed else np.minimum(PACKED, 1)
  factorized, random = (
    harness.parallel(
      member.of_size(max_length=SIZE, rank=SIZE).maker(packed=packed),
      family.tokens(PACKED),
      ids,
      DECODER,
      weights=weights,
    )
    for member in (family.FR, family.R)
  )
  harness.assert_close(factorized.output, random.output, 'output')
  harness.assert_close(
    factorized.gradients['factorized_random/R1'],
    random.gradients['random/R'],
    'gradient',
  )


@pytest.mark.parametrize('rank', [1, 17])
def test_any_rank(rank):
  member = family.FR.of_size(rank=rank, tile_length=3)
  checks.parallel(
    member.maker(packed=True), member.reference(), PACKED, DECODER
  )


def test_a_rank_below_1_is_refused():
  with pytest.raises(
    ConfigurationError, match=r'FactorizedRandom\.rank = 0: expected at least 1'
  ):
    synth_mtf.FactorizedRandom(rank=0)
