"""The mean and the spread of a model's seeds."""

import numpy as np

from synth_mtf.results.figures import seeds


def test_a_band_is_mean_and_spread():
  spread = seeds.band([{0: 4, 1: 2}, {0: 6, 1: 2}]).spread
  np.testing.assert_allclose(spread, [2**0.5, 0])


def test_a_single_seed_has_no_spread():
  steps, mean, spread = seeds.band([{8: 4.0, 2: 1.0}])
  assert (list(steps), list(mean), list(spread)) == ([2, 8], [1, 4], [0, 0])


def test_curves_logged_at_other_steps_are_brought_together():
  first, second = seeds.at_common_steps(
    [{1: 8.0, 100: 4.0, 200: 2.0, 300: 1.0}, {99: 5.0, 1: 9.0, 201: 3.0}]
  )
  assert first == {1: 8.0, 100: 4.0, 200: 2.0}
  assert list(second) == [1, 100, 200]
  np.testing.assert_allclose(
    list(second.values()), [9.0, 5 - 2 / 102, 5 - 2 * 101 / 102]
  )
