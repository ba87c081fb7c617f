"""The weighted sum where all examples share their logits, at its edges."""

import numpy as np
import pytest

from tests import checks, family, harness
from tests.harness import DECODER, ENCODER

ROWS = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
# One table, and two whose centers differ.
TABLES = pytest.mark.parametrize('name', ['random', 'random_random'])
MESHES = pytest.mark.parametrize(
  'mesh', [harness.ONE_DEVICE, harness.TPU], ids=['cpu', 'tpu']
)
# The general way must agree.
both_ways = pytest.mark.parametrize(
  'packed', [False, True], ids=['shared', 'general']
)


def spread(extent, low=None):
  """Tables whose entries lie anywhere up to an extent."""
  low = -extent if low is None else low

  def weights(name, shape):
    drawn = harness.draw(name, shape)
    if name.startswith('random'):
      rng = np.random.RandomState(len(name))
      drawn = rng.uniform(low, extent, shape).astype(np.float32)
    return drawn

  return weights


@TABLES
@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
@MESHES
def test_it_is_right_for_logits_spread_over_60(name, stack, mesh):
  member = family.ALL[name]
  checks.parallel(
    member.maker(),
    member.reference(),
    ROWS,
    stack,
    weights=spread(60.0),
    mesh=mesh,
    # exp(x) of a float32 x is right to |x| 2^-24.
    tolerance=60 * 2.0**-22,
  )


@TABLES
@both_ways
def test_a_common_offset_of_the_logits_changes_nothing(name, packed):
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=packed),
    member.reference(),
    ROWS,
    ENCODER,
    weights=spread(1003.0, 1000.0),
    tolerance=1e-3,  # of 1000 float32 keeps 1e-4
  )


@pytest.mark.parametrize('name', ['random', 'random_random', 'random_vanilla'])
@pytest.mark.parametrize('extent', [1e3, 1e20])
def test_no_logits_make_a_nan(name, extent):
  result = harness.parallel(
    family.ALL[name].maker(),
    family.tokens(ROWS),
    ROWS,
    DECODER,
    weights=spread(extent),
  )
  assert np.isfinite(result.output).all()
  for where, gradient in result.gradients.items():
    assert np.isfinite(gradient).all(), where


def test_logits_further_than_150_apart_count_as_150():
  """Of two visible keys the lower one has a weight of exp(-150)."""
  x = family.tokens(np.ones([1, 2]))
  far = harness.parallel(
    family.R.maker(),
    x,
    np.ones([1, 2], int),
    mode='eval',
    weights=lambda n, s: (
      np.broadcast_to(np.array([1e6] + [0] * (s[-1] - 1)), s)
      if n == 'random/R'
      else harness.draw(n, s)
    ),
  )
  first = x[:, :1] @ far.weights['v'] @ far.weights['o']
  harness.assert_close(far.output, np.repeat(first, 2, axis=1), 'output')


def test_the_largest_tensor_does_not_grow_with_the_batch():
  length = 29

  def largest(name, batch):
    x = harness.draw('x', [batch, length, 4])
    result = harness.parallel(
      family.ALL[name].of_size(max_length=length).maker(key_value_size=1),
      x,
      np.ones(x.shape[:2], int),
      DECODER,
    )
    return max(np.prod(shape, dtype=int) for _, shape in result.shapes)

  whole = family.HEADS * length**2
  for name in ('random', 'factorized_random'):
    assert largest(name, 2) == largest(name, 7) == whole
  # The measure sees what it should: the dot product does grow.
  assert largest('vanilla', 7) == 7 * whole


@TABLES
@MESHES
def test_z_loss_is_that_of_the_general_way(name, mesh):
  """The mean square of log Z, over tokens, as the host has it."""
  shared, general = (
    harness.parallel(
      family.ALL[name].maker(packed=packed, z_loss_coeff=0.1),
      family.tokens(ROWS),
      ROWS,
      DECODER,
      mesh=m,
    )
    for packed, m in ((False, mesh), (True, harness.ONE_DEVICE))
  )
  assert len(shared.losses) == 1
  assert shared.losses[0] > 0
  harness.assert_close(
    np.array(shared.losses), np.array(general.losses), 'z loss'
  )
  harness.assert_close(shared.gradients, general.gradients, 'gradient')
