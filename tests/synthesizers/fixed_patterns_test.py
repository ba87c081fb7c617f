"""Fixed patterns, in the manner of Raganato et al. (arXiv 2002.10260)."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER

NAMES = ('current', 'previous', 'next', 'left', 'right', 'start', 'end')


def member(patterns):
  return family.single(
    synth_mtf.FixedPatterns,
    functools.partial(reference.patterns, names=patterns, size=13),
    patterns=patterns,
  ).but(num_heads=len(NAMES))


@pytest.mark.sampled
@pytest.mark.parametrize('rows', [PADDED, PACKED], ids=['padded', 'packed'])
@pytest.mark.parametrize(
  'patterns, stack', [(NAMES, ENCODER), (NAMES[:-1], DECODER)]
)
def test_patterns_as_many_as_heads_or_fewer(patterns, stack, rows):
  checks.parallel(member(patterns), rows, stack)


def test_each_pattern_by_hand():
  """The weights themselves, for one sequence of five tokens."""
  at = np.arange(5)
  example = reference.Example(np.zeros([5, 1]), {}, 7, False, at, at)
  logits = reference.patterns(example, NAMES, 5)
  weights, _ = reference.softmax(logits, np.ones([5, 5], bool))
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


def test_a_decoder_does_not_know_the_end():
  with pytest.raises(
    ConfigurationError, match="'end' needs the whole sequence"
  ):
    harness.variables(member(NAMES), family.tokens(PADDED.ids), stack=DECODER)


@pytest.mark.parametrize(
  'patterns, message',
  [
    (('curent',), 'expected names from.*current'),
    ((), 'expected names from'),
  ],
)
def test_unknown_patterns(patterns, message):
  with pytest.raises(ConfigurationError, match=message):
    synth_mtf.FixedPatterns(patterns=patterns)
