"""R, Fixed R and FR: learned tables."""

import numpy as np
import pytest

import synth_mtf
from tests import checks, family, harness
from tests.family import PACKED

X = family.tokens(np.ones([2, 7]))


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
