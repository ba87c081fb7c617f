"""Learning curves, as they are drawn."""

import numpy as np
import pytest

from synth_mtf.errors import UserError
from tests.results.figures.made import legend, panel, result, run

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.results.figures import curves  # noqa: E402  after what it needs


def test_curves_are_means_over_seeds_in_a_band():
  runs = [
    run('Syn (R)', [(0, 4), (10, 2), (20, 1)]),
    run('Syn (R)', [(0, 6), (10, 4)]),  # still being written
    run('T5 (V)', [(0, 5), (10, 1)]),
  ]
  figure = curves.draw(runs)
  of_loss = panel(figure, 'training loss')
  np.testing.assert_allclose(of_loss.lines[0].get_xydata(), [(0, 5), (10, 3)])
  assert len(of_loss.collections) == 1  # of what has two seeds
  assert legend(figure) == ['Syn (R)', 'T5 (V)']


def test_seeds_whose_loss_was_logged_at_other_steps_are_a_whole_curve():
  runs = [
    run('Syn (R)', [(1, 8), (100, 4), (199, 2)]),
    run('Syn (R)', [(1, 8), (101, 4), (201, 2)]),
  ]
  (line,) = panel(curves.draw(runs), 'training loss').lines
  assert list(line.get_xdata()) == [1, 100, 199]


def test_what_was_trained_in_another_way_is_another_curve():
  runs = [
    run('Syn (R)', [(0, 4), (10, 2)], d_ff='8', seed='0'),
    run('Syn (R)', [(0, 6), (10, 4)], d_ff='16', seed='0'),
    run('Syn (R)', [(0, 8), (10, 4)], d_ff='16', seed='1'),
  ]
  lines = panel(curves.draw(runs), 'training loss').lines
  assert [line.get_ydata()[0] for line in lines] == [4, 7]


def test_curves_of_scores_and_of_log_perplexity():
  results = [
    result('cola', 'accuracy', value, step)
    for step, value in ((100, 50.0), (200, None), (300, 70.0))
  ]
  results += [result('c4', 'neg_log_perplexity', -3 + s, s) for s in (0, 1)]
  figure = curves.draw([run('Syn (R)', results=results)])
  of_task = panel(figure, 'cola\naccuracy').lines[0]
  np.testing.assert_allclose(of_task.get_xydata(), [(100, 50), (300, 70)])
  perplexity = panel(figure, 'c4\nlog perplexity').lines[0]
  np.testing.assert_allclose(perplexity.get_xydata(), [(0, 3), (1, 2)])


def test_losses_that_span_a_factor_of_ten_have_a_logarithmic_axis():
  results = [result('c4', 'neg_log_perplexity', -s, s) for s in (1, 5, 9)]
  results += [result('cola', 'accuracy', s, s) for s in (1, 5, 99)]
  figure = curves.draw([run('Syn (R)', [(0, 6.5), (10, 0.3)], results=results)])
  assert panel(figure, 'training loss').get_yscale() == 'log'
  assert panel(figure, 'c4\nlog perplexity').get_yscale() == 'linear'
  assert panel(figure, 'cola\naccuracy').get_yscale() == 'linear'


def test_a_loss_of_zero_is_on_its_axis():
  figure = curves.draw([run('Syn (R)', [(0, 6.5), (10, 0.0)])])
  assert panel(figure, 'training loss').get_yscale() == 'linear'


def test_nothing_to_draw():
  nothing = [run('Syn (R)', [(0, 4)])]
  with pytest.raises(UserError, match='no curve has two points.*runs/Syn'):
    curves.draw(nothing)
