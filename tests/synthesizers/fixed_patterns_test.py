"""Hand-made patterns, in the manner of Raganato et al. (arXiv 2002.10260)."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER, ENCODER

NAMES = ('current', 'previous', 'next', 'left', 'right', 'start', 'end')
PACKED = np.array([[1, 1, 1, 1, 1, 2, 2], [1, 2, 2, 2, 2, 0, 0]])


def layer(patterns, **settings):
  function = functools.partial(
    synth_mtf.FixedPatterns, patterns=patterns, max_length=13
  )
  return family.Member((function,), ()).maker(num_heads=len(NAMES), **settings)


def expected(patterns):
  return reference.Layer(
    [reference.patterns(patterns, 13)], len(NAMES), family.D_KV
  )


@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_all_patterns_in_an_encoder(packed):
  result = checks.parallel(
    layer(NAMES, packed=packed),
    expected(NAMES),
    PACKED if packed else np.minimum(PACKED, 1),
    ENCODER,
  )
  assert set(result.weights) == {'v', 'o'}


@pytest.mark.parametrize('packed', [False, True], ids=['padded', 'packed'])
def test_fewer_patterns_than_heads_in_a_decoder(packed):
  patterns = NAMES[:-1]
  checks.parallel(
    layer(patterns, packed=packed),
    expected(patterns),
    PACKED if packed else np.minimum(PACKED, 1),
    DECODER,
  )


def test_decoding():
  make = layer(NAMES[:-1])
  x = family.tokens(np.ones([2, 4]))
  parallel = harness.parallel(make, x, stack=DECODER, mode='eval').output
  harness.assert_close(harness.decode(make, x), parallel, 'token by token')


def test_each_pattern_by_hand():
  """The weights themselves, for one sequence of five tokens."""
  weights = reference.softmax(
    reference.patterns(NAMES, 5)(
      reference.One(np.zeros([5, 1]), {}, 7, False, *[np.arange(5)] * 2)
    ),
    np.ones([5, 5], bool),
  )
  current, previous, following, left, right, start, end = weights.round(6)
  np.testing.assert_array_equal(current, np.eye(5))
  np.testing.assert_array_equal(previous[1:], np.eye(5)[:4])
  np.testing.assert_array_equal(following[:4], np.eye(5)[1:])
  np.testing.assert_array_equal(start, np.eye(5)[[0] * 5])
  np.testing.assert_array_equal(end, np.eye(5)[[4] * 5])
  # Tokens 0, 1, 2 are 4, 3, 2 before token 4: 1^3, 2^3, 3^3 of 36.
  np.testing.assert_allclose(
    left[4], np.array([1, 8, 27, 0, 0]) / 36, atol=1e-6
  )
  np.testing.assert_allclose(right[0], left[4][::-1], atol=1e-6)
  # Token 0 has nothing before it.
  np.testing.assert_allclose(previous[0], 0.2, atol=1e-6)


def test_the_end_is_not_known_in_a_decoder():
  with pytest.raises(
    ConfigurationError, match="'end' needs the whole sequence"
  ):
    harness.parallel(
      layer(NAMES), family.tokens(np.ones([2, 7])), stack=DECODER
    )


@pytest.mark.parametrize(
  'patterns, message',
  [
    (('curent',), 'expected names out of.*current'),
    ((), 'expected names out of'),
  ],
)
def test_unknown_patterns(patterns, message):
  with pytest.raises(ConfigurationError, match=message):
    synth_mtf.FixedPatterns(patterns=patterns)
