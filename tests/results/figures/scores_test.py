"""Scores against costs, as they are drawn."""

import pytest

from synth_mtf.errors import UserError
from tests.results.figures.made import result, run

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.results.figures import scores  # noqa: E402  after what it needs


def test_scores_are_means_inside_a_task_first():
  results = [
    result('cola', 'matthews', 0.0, 100),  # an earlier step
    result('cola', 'matthews', 10.0, 200),
    result('mrpc', 'f1', 20.0, 200),
    result('mrpc', 'accuracy', 40.0, 200),
  ]
  one = run('Syn (R)', results=results, speed=2.0, parameters=3_000_000)
  assert scores.score(one) == 20.0
  figure = scores.draw([one, run('T5 (V)', results=results[1:2], speed=1.0)])
  left, right = figure.axes
  assert left.get_ylabel() == 'score at the last step'
  assert [text.get_text() for text in left.texts] == ['Syn (R)', 'T5 (V)']
  # Of the second, the number of parameters is not known.
  assert [text.get_text() for text in right.texts] == ['Syn (R)']
  assert right.texts[0].xy == (3.0, 20.0)


def test_log_perplexity_where_there_are_no_scores():
  results = [result('c4', 'neg_log_perplexity', -1.5, 7)]
  figure = scores.draw([run('Syn (R)', results=results, speed=1.0)])
  assert figure.axes[0].get_ylabel() == 'log perplexity at the last step'
  assert figure.axes[0].texts[0].xy == (1.0, 1.5)


def test_names_that_would_lie_on_others_are_left_to_the_legend():
  runs = [
    run(
      label,
      results=[result('c4', 'neg_log_perplexity', value, 7)],
      speed=1.0,
    )
    for label, value in (
      ('Syn (R)', -1.5),
      ('Syn (D)', -1.501),
      ('T5 (V)', -3.0),
    )
  ]
  figure = scores.draw(runs)
  shown = [t.get_text() for t in figure.axes[0].texts if t.get_visible()]
  assert shown == ['Syn (R)', 'T5 (V)']
  (legend,) = figure.legends
  assert len(legend.get_texts()) == 3


def test_nothing_to_draw():
  nothing = [run('Syn (R)', [(0, 4)])]
  with pytest.raises(UserError, match='no evaluation is in runs/Syn'):
    scores.draw(nothing)
