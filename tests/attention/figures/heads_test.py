"""How far and how widely heads look, against sums by hand."""

import numpy as np
import pytest

from tests.attention.figures.made import attention

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.attention.figures import heads  # noqa: E402  after what it needs


def test_entropy_and_distance():
  even = attention()
  np.testing.assert_allclose(heads.entropy(even, 'encoder'), np.log(4))
  np.testing.assert_allclose(heads.entropy(even, 'cross'), np.log(4))
  np.testing.assert_allclose(
    heads.entropy(even, 'decoder'), (0 + np.log(2) + np.log(3)) / 3
  )
  # Rows of a causal sequence: 0; (1 + 0) / 2; (2 + 1 + 0) / 3.
  np.testing.assert_allclose(heads.distance(even, 'decoder'), (0 + 0.5 + 1) / 3)
  previous = np.zeros([2, 1, 3, 4, 4])
  for i in range(4):
    previous[:, :, :, i, max(i - 1, 0)] = 1
  one = attention(weights=previous, stacks=['encoder'])
  np.testing.assert_allclose(heads.entropy(one, 'encoder'), 0)
  np.testing.assert_allclose(heads.distance(one, 'encoder'), 3 / 4)


def test_heads():
  figure = heads.draw([attention(), attention('T5 (V)')])
  assert [a.get_title() for a in figure.axes if a.axison] == [
    'encoder: entropy',
    'encoder: distance',
    'decoder: entropy',
    'decoder: distance',
    'cross: entropy',
  ]
