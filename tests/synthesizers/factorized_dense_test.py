"""FD: the outer product of two short vectors, read as one row."""

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER


def with_factors(*factors):
  return family.FD.of_size(max_length=factors[0] * factors[1], factors=factors)


@pytest.mark.parametrize(
  'size, factors',
  [
    (1, (1, 1)),
    (13, (1, 13)),
    (114, (6, 19)),
    (256, (16, 16)),
    (512, (16, 32)),
  ],
)
def test_the_default_is_the_most_square_pair(size, factors):
  assert synth_mtf.FactorizedDense(max_length=size).factors == factors


@pytest.mark.parametrize(
  'factors, rows',
  [((2, 7), PACKED), ((7, 2), PADDED), ((1, 14), PADDED), ((14, 1), PACKED)],
)
def test_factors(factors, rows):
  checks.parallel(with_factors(*factors), rows, ENCODER)


@pytest.mark.parametrize('factors, plain', [((13, 1), 'WA'), ((1, 13), 'WB')])
def test_with_one_factor_of_1_it_is_dense(factors, plain):
  """a = N and b = 1: S(x_l)[i] = A_l[i] B_l, which for B = 1 is D.

  The last channel of the input is 1, one hidden unit copies it, and the other
  factor reads only that unit.
  """
  x = family.tokens(np.ones([2, 7]))
  x[..., -1] = 1

  def weights(name, shape):
    short = name.split('/')[-1]
    if short == 'W1':
      drawn = harness.draw('dense/W1', shape)
      drawn[..., 0] = 0
      drawn[-1, :, 0] = 1
      return drawn
    if short in ('W2', plain):
      return harness.draw('dense/W2', shape)
    if short in ('WA', 'WB'):
      one = np.zeros(shape)
      one[:, 0] = 1
      return one
    return harness.draw(name, shape)

  factorized, dense = (
    harness.parallel(member, x, stack=DECODER, weights=weights)
    for member in (with_factors(*factors), family.D)
  )
  harness.assert_close(factorized.output, dense.output, 'output')
  harness.assert_close(
    factorized.gradients[f'factorized_dense/{plain}'],
    dense.gradients['dense/W2'],
    'gradient',
  )


@pytest.mark.parametrize(
  'factors', [(3, 4), (13,), (0, 13), (-1, -13), (13, 1, 1)]
)
def test_factors_that_do_not_fit(factors):
  with pytest.raises(
    ConfigurationError,
    match=r'FactorizedDense\.factors = .*: expected \(a, b\) with a b = 13, '
    r'for example \(1, 13\)',
  ):
    synth_mtf.FactorizedDense(factors=factors, max_length=13)
