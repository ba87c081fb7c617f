"""The weighted sum if all examples share their logits: extreme cases."""

import numpy as np
import pytest

from tests import checks, family, harness
from tests.family import PADDED
from tests.harness import DECODER, ENCODER

# One table, and two whose centers differ.
tables = family.some('random', 'random_random')
# The general way must agree.
both_ways = pytest.mark.parametrize(
  'packed', [False, True], ids=['shared', 'general']
)


def spread(extent, low=None):
  """Tables whose entries are uniform between `low` (-extent) and `extent`."""
  low = -extent if low is None else low

  def weights(name, shape):
    if not name.startswith('random'):
      return harness.draw(name, shape)
    rng = np.random.RandomState(len(name))
    return rng.uniform(low, extent, shape).astype(np.float32)

  return weights


@tables
@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
@pytest.mark.parametrize(
  'mesh', [harness.ONE_DEVICE, harness.TPU], ids=['cpu', 'tpu']
)
def test_logits_may_spread_over_60(member, stack, mesh):
  checks.parallel(
    member,
    PADDED,
    stack,
    weights=spread(60.0),
    mesh=mesh,
    # exp(x) of a float32 x is exact to |x| 2^-24.
    tolerance=60 * 2.0**-22,
  )


@tables
@both_ways
def test_a_common_offset_of_the_logits_changes_nothing(member, packed):
  checks.parallel(
    member.but(packed=packed),
    PADDED,
    ENCODER,
    weights=spread(1003.0, 1000.0),
    tolerance=1e-3,  # near 1000, float32 is exact to 1e-4
  )


@family.some('random', 'random_random', 'random_vanilla')
@pytest.mark.parametrize('extent', [1e3, 1e20])
def test_no_logits_make_a_nan(member, extent):
  ids = PADDED.ids
  result = harness.parallel(
    member, family.tokens(ids), ids, DECODER, weights=spread(extent)
  )
  assert np.isfinite(result.output).all()
  for where, gradient in result.gradients.items():
    assert np.isfinite(gradient).all(), where


def test_logits_further_than_150_apart_count_as_150():
  """Of two visible keys the lower one has a weight of exp(-150)."""
  x = family.tokens(np.ones([1, 2]))

  def weights(name, shape):
    if name != 'random/R':
      return harness.draw(name, shape)
    return np.broadcast_to(np.array([1e6] + [0] * (shape[-1] - 1)), shape)

  far = harness.parallel(
    family.R, x, np.ones([1, 2], int), mode='eval', weights=weights
  )
  first = x[:, :1] @ far.weights['v'] @ far.weights['o']
  harness.assert_close(far.output, np.repeat(first, 2, axis=1), 'output')
