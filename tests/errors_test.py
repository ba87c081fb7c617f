"""Errors for users."""

import pytest

from synth_mtf.errors import nearest

NAMES = ['random', 'random_vanilla', 'dense', None, 3]


@pytest.mark.parametrize(
  'name, hint',
  [
    ('randm', "; did you mean 'random'?"),
    ('random_vanila', "; did you mean 'random_vanilla' or 'random'?"),
    ('dens', "; did you mean 'dense'?"),
    ('zzzz', ''),
    (None, ''),
  ],
)
def test_nearest_offers_what_is_like_a_name(name, hint):
  assert nearest(name, NAMES) == hint
