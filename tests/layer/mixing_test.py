"""alpha, the weights in a mixture of synthesizers."""

import numpy as np
import pytest

from tests import family, harness
from tests.family import PADDED, D, R, V
from tests.harness import DECODER

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


@pytest.mark.parametrize('mixing', ['softmax', 'layer_softmax'])
@pytest.mark.parametrize('end', [pytest.param(0, marks=pytest.mark.slow), 1])
def test_alpha_at_an_end_is_one_component_alone(mixing, end):
  def weights(name, shape):
    if name != 'alpha':
      return harness.draw(name, shape)
    scores = np.full(shape, -100.0)
    scores[end] = 100.0
    return scores

  mixed, alone = (
    harness.parallel(
      member.but(mixing=mixing),
      family.tokens(PADDED.ids),
      PADDED.ids,
      DECODER,
      weights=weights,
    )
    for member in (R + V, (R, V)[end])
  )
  harness.assert_close(mixed.output, alone.output, 'output')
  for name, gradient in mixed.gradients.items():
    expected = alone.gradients.get(name, np.zeros_like(gradient))
    np.testing.assert_allclose(gradient, expected, atol=1e-5, err_msg=name)
