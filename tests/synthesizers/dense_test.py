"""D: a two-layer network makes each token's row."""

import numpy as np
import pytest

from tests import checks, family, harness
from tests.harness import DECODER

PADDED = np.array([[1] * 7, [1, 1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize(
  'heads, variables',
  [
    (
      1,
      {'dense/W1': (11, 5), 'dense/W2': (5, 13), 'v': (11, 5), 'o': (5, 11)},
    ),
    (
      3,
      {
        'dense/W1': (11, 3, 5),
        'dense/W2': (3, 5, 13),
        'v': (11, 15),
        'o': (15, 11),
      },
    ),
  ],
)
def test_variables(heads, variables):
  x = family.tokens(PADDED)
  assert harness.variables(family.D.maker(num_heads=heads), x) == variables


def test_a_width_of_its_own():
  member = family.D.of_size(key_value_size=2)
  result = checks.parallel(member.maker(), member.reference(), PADDED, DECODER)
  assert result.weights['dense/W1'].shape == (11, 3, 2)
  assert result.weights['dense/W2'].shape == (3, 2, 13)
