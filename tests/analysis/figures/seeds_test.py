"""The mean and the spread of a model's seeds."""

import numpy as np

from synth_mtf.analysis.figures import seeds


def test_a_band_is_mean_and_spread():
  spread = seeds.band([{0: 4, 1: 2}, {0: 6, 1: 2}]).spread
  np.testing.assert_allclose(spread, [2**0.5, 0])


def test_a_single_seed_has_no_spread():
  steps, mean, spread = seeds.band([{8: 4.0, 2: 1.0}])
  assert (list(steps), list(mean), list(spread)) == ([2, 8], [1, 4], [0, 0])
