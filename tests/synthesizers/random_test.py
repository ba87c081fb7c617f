"""R, Fixed R and FR: learned tables."""

import numpy as np
import pytest

import synth_mtf
from tests import checks, family, harness
from tests.family import PACKED, PADDED
from tests.harness import DECODER

X = family.tokens(np.ones([2, 7]))
SIZE = 7


@pytest.mark.parametrize('packed', [False, True], ids=['shared', 'general'])
def test_fixed_random_is_kept_and_gets_no_gradient(packed):
  member = family.VARIANTS['fixed_random'].but(packed=packed)
  result = harness.parallel(member, X, np.ones([2, 7], int))
  assert 'random/R' in result.weights
  assert sorted(result.trainable) == ['o', 'v']
  assert set(result.gradients) == {'x', 'o', 'v'}


def test_the_rank_is_that_of_the_paper():
  assert synth_mtf.FactorizedRandom().rank == 8


@pytest.mark.parametrize('rank', [1, 17])
def test_any_rank(rank):
  checks.parallel(family.FR.of_size(rank=rank, tile_length=3), PACKED)


@pytest.mark.parametrize('rows', [PADDED, PACKED], ids=['padded', 'packed'])
def test_of_full_rank_fr_is_random(rows):
  """R1 = R and R2 = 1: R1 R2^T = R."""

  def weights(name, shape):
    if name == 'factorized_random/R2':
      return np.broadcast_to(np.eye(SIZE), shape)
    return harness.draw(name.replace('factorized_random/R1', 'random/R'), shape)

  factorized, random = (
    harness.parallel(
      member.of_size(max_length=SIZE, rank=SIZE).but(packed=rows.packed),
      family.tokens(rows.ids),
      rows.ids,
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
