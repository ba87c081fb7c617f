"""R and Fixed R: tables."""

import numpy as np
import pytest

from tests import family, harness
from tests.harness import DECODER

PACKED = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])
X = family.tokens(PACKED)


@pytest.mark.parametrize(
  'heads, variables',
  [
    (1, {'random/R': (13, 13), 'v': (11, 5), 'o': (5, 11)}),
    (3, {'random/R': (3, 13, 13), 'v': (11, 15), 'o': (15, 11)}),
  ],
)
def test_variables(heads, variables):
  assert harness.variables(family.R.maker(num_heads=heads), X) == variables


@pytest.mark.parametrize('packed', [False, True], ids=['shared', 'general'])
def test_fixed_random_is_kept_and_gets_no_gradient(packed):
  member = family.VARIANTS['fixed_random']
  result = harness.parallel(member.maker(packed=packed), X, PACKED)
  assert 'random/R' in result.weights
  assert sorted(result.trainable) == ['o', 'v']
  assert set(result.gradients) == {'x', 'o', 'v'}


def test_a_constant_table_averages_what_is_visible():
  result = harness.parallel(
    family.R.maker(),
    X,
    stack=DECODER,
    mode='eval',
    weights=lambda n, s: np.full(s, 3.0) if n[0] == 'r' else harness.draw(n, s),
  )
  averages = np.cumsum(X, axis=1) / np.arange(1, 8)[:, None]
  expected = averages @ result.weights['v'] @ result.weights['o']
  harness.assert_close(result.output, expected, 'averages')
