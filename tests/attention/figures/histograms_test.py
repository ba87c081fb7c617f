"""Histograms of attention weights, against shares by hand."""

import numpy as np
import pytest

from synth_mtf.attention.file import SIDES
from synth_mtf.errors import UserError
from tests.attention.figures.made import attention, legend, panel

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.attention.figures import (  # noqa: E402  after what it needs
  histograms,
)


def test_histograms_have_the_paper_s_layers_and_count_what_is_seen():
  figure = histograms.draw([attention(), attention('T5 (V)')])
  titles = [a.get_title() for a in figure.axes]
  assert titles == [f'{s}, layer {n}' for s in SIDES for n in (1, 3, 5)]
  assert legend(figure) == ['Syn (R)', 'T5 (V)']
  # Of a causal row of 1, 1/2 and 1/3 the three sizes are 1, 2 and 3 in 6.
  stairs = panel(figure, 'decoder, layer 3').patches[0]
  values, edges, _ = stairs.get_data()
  np.testing.assert_allclose(values.sum(), 100)
  for weight, share in ((1.0, 1 / 6), (1 / 2, 2 / 6), (1 / 3, 3 / 6)):
    at = min(int(np.searchsorted(edges, weight, 'right')), len(values)) - 1
    np.testing.assert_allclose(values[at], 100 * share)


@pytest.mark.parametrize(
  'layers, given, shown',
  [(2, None, [1, 2]), (5, None, [1, 3, 5]), (12, [2, 12], [2, 12])],
)
def test_layers(layers, given, shown):
  figure = histograms.draw([attention(layers=layers)], given)
  titles = [a.get_title() for a in figure.axes[: len(shown)]]
  assert titles == [f'encoder, layer {number}' for number in shown]


def test_a_layer_that_is_not_there():
  with pytest.raises(UserError, match='there is no layer 7; there are 1 to 6'):
    histograms.draw([attention()], [7])
