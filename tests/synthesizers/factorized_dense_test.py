"""FD: the outer product of two short vectors, read as one row."""

import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family
from tests.family import PACKED, PADDED
from tests.harness import ENCODER


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
  member = family.FD.of_size(
    max_length=factors[0] * factors[1], factors=factors
  )
  checks.parallel(member, rows, ENCODER)


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
