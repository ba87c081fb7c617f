"""GLU: a gated hidden layer."""

import numpy as np

from tests import family, harness


def test_variables():
  member = family.VARIANTS['glu']
  x = family.tokens(np.ones([2, 7]))
  assert harness.variables(member.maker(), x) == {
    'gated_dense/W1': (11, 3, 5),
    'gated_dense/Wg': (11, 3, 5),
    'gated_dense/W2': (3, 5, 13),
    'v': (11, 15),
    'o': (15, 11),
  }
