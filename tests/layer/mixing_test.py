"""alpha, the weights in a mixture of synthesizers."""

import numpy as np
import pytest

from tests import family, harness
from tests.family import D, R, V

X = family.tokens(np.ones([2, 7]))


@pytest.mark.parametrize(
  'member, mixing, shape',
  [
    (R + D + V, 'softmax', (3, 3)),
    (R + D + V, 'layer_softmax', (3,)),
    (R + D + V, 'layer_sigmoid', (2,)),
    (R + D + V, 'sum', None),
    ((R + V).but(num_heads=1), 'softmax', (2,)),
    *((R, mixing, None) for mixing in ('softmax', 'layer_softmax', 'sum')),
  ],
)
def test_variable(member, mixing, shape):
  """[synthesizers, heads], before its softmax; all start with equal weights."""
  member = member.but(mixing=mixing)
  drawn = harness.parallel(member, X, mode='eval', weights=None).weights
  if shape is None:
    assert 'alpha' not in drawn
  else:
    np.testing.assert_array_equal(drawn['alpha'], np.zeros(shape))
