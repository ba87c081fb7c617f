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


def test_r_drawn_uniformly():
  member = family.R.of_size(max_length=64, uniform=True)
  r = harness.parallel(member, X, np.ones([2, 7], int)).weights['random/R']
  assert 0 <= r.min() < 0.01 and 0.99 < r.max() < 1
  # Of n draws, mean and variance have deviations of these sizes.
  assert r.mean() == pytest.approx(1 / 2, abs=4 * (12 * r.size) ** -0.5)
  assert r.var() == pytest.approx(1 / 12, abs=4 * (180 * r.size) ** -0.5)


def test_the_rank_is_that_of_the_paper():
  assert synth_mtf.FactorizedRandom().rank == 8


@pytest.mark.parametrize('rank', [1, 17])
def test_any_rank(rank):
  checks.parallel(family.FR.of_size(rank=rank, tile_length=3), PACKED)
