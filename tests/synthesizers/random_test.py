"""R, Fixed R and FR: learned tables."""

import numpy as np
import pytest

import synth_mtf
from synth_mtf.host import gin_files, model as host_model
from tests import checks, family, harness, model
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
  gin_files.parse(model.files('random'), [*model.TINY, 'Random.uniform = True'])
  name = 'encoder/block_000/layer_000/SyntheticAttention/random/R'
  r = host_model.build(model.VOCAB).initial_values([name])[name]
  assert 0 <= r.min() < 0.05 and 0.95 < r.max() < 1
  # Of n draws, mean and variance have deviations of these sizes.
  assert r.mean() == pytest.approx(1 / 2, abs=4 * (12 * r.size) ** -0.5)
  assert r.var() == pytest.approx(1 / 12, abs=4 * (180 * r.size) ** -0.5)


def test_the_rank_is_that_of_the_paper():
  assert synth_mtf.FactorizedRandom().rank == 8


@pytest.mark.parametrize('rank', [1, 17])
def test_any_rank(rank):
  checks.parallel(family.FR.of_size(rank=rank, tile_length=3), PACKED)
