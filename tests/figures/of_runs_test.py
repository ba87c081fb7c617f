"""Learning curves, scores against costs and alpha, as they are drawn."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from synth_mtf.errors import UserError
from tests.figures.drawn import legend, panel
from tests.results.made_runs import fake, result

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.figures import of_runs  # noqa: E402  after what it needs

LOSS = 'training loss'


def trained(loss, label='Syn (R)', name='', **facts):
  name = f'{label}{loss}{name}'
  return fake(name, label=label, losses={'': dict(loss)}, **facts)


def scored(*results, label='Syn (R)', **facts):
  """A run of results, each a task, metric, value and step."""
  keys = ('task', 'metric', 'value', 'step')
  made = [result(**dict(zip(keys, one, strict=True))) for one in results]
  return fake(f'runs/{label}', *made, label=label, **facts)


def curves(runs, tasks=()):
  """The only figure of curves."""
  (figure,) = of_runs.curves(runs, tasks)
  return figure


def perplexity(*values):
  return [('c4', 'neg_log_perplexity', -v, s) for s, v in enumerate(values)]


def test_curves_are_means_over_seeds_in_a_band():
  runs = [
    trained([(0, 4), (10, 2), (20, 1)]),
    trained([(0, 6), (10, 4)]),  # still being written
    trained([(0, 5), (10, 1)], 'T5 (V)'),
  ]
  figure = curves(runs)
  of_loss = panel(figure, LOSS)
  np.testing.assert_allclose(of_loss.lines[0].get_xydata(), [(0, 5), (10, 3)])
  (band,) = of_loss.collections  # of what has two seeds
  edge = 5 + np.std([4, 6], ddof=1)
  assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(edge)
  assert legend(figure) == ['Syn (R)', 'T5 (V)']


def test_losses_logged_at_other_steps_are_interpolated_at_those_of_the_first():
  first = trained([(1, 8), (100, 4), (200, 2), (300, 1)])
  second = trained([(1, 9), (99, 5), (201, 3)])
  (line,) = panel(curves([first, second]), LOSS).lines
  between = np.array([9, 5 - 2 / 102, 5 - 2 * 101 / 102])
  expected = (np.array([8, 4, 2]) + between) / 2
  np.testing.assert_allclose(line.get_xdata(), [1, 100, 200])
  np.testing.assert_allclose(line.get_ydata(), expected)


def test_what_was_trained_in_another_way_is_another_curve():
  runs = [
    trained([(0, y), (10, 2)], bindings={'d_ff': d_ff, 'seed': seed})
    for y, d_ff, seed in ((4, '8', '0'), (6, '16', '0'), (8, '16', '1'))
  ]
  lines = panel(curves(runs), LOSS).lines
  assert [line.get_ydata()[0] for line in lines] == [4, 7]


def test_stages_are_apart_and_marked():
  stages = {'pretrain': {1: 9, 50: 5}, 'finetune': {51: 7, 90: 3}}
  (of_loss,) = curves([fake('a', losses=stages)]).axes
  *lines, first, second = sorted(
    of_loss.lines, key=lambda line: line.get_linestyle() == ':'
  )
  assert [line.get_xdata().tolist() for line in lines] == [[1, 50], [51, 90]]
  assert (first.get_visible(), second.get_visible()) == (False, True)
  assert second.get_xdata() == [51, 51]
  assert [text.get_text() for text in of_loss.texts] == [*stages]
  assert all(line.get_marker() == 'o' for line in lines)


def test_curves_of_scores_and_of_log_perplexity():
  values = [('cola', 'accuracy', 50.0, 100), ('cola', 'accuracy', None, 200)]
  values += [('cola', 'accuracy', 70.0, 300), *perplexity(3, 2)]
  run = scored(*values)
  run.results[0] = dataclasses.replace(run.results[0], standard_error=4.0)
  run.results += [dataclasses.replace(x, split='test') for x in run.results]
  figure = curves([run])
  panel(figure, 'cola (test)\naccuracy')
  of_score = panel(figure, 'cola\naccuracy')
  np.testing.assert_allclose(
    of_score.lines[0].get_xydata(), [(100, 50), (300, 70)]
  )
  bar = of_score.collections[0].get_segments()[0]
  np.testing.assert_allclose(bar, [(100, 46), (100, 54)])
  labels = of_score.get_xlabel(), of_score.get_ylabel()
  assert labels == ('training step', 'score')
  (line,) = panel(figure, 'c4\nlog perplexity').lines
  np.testing.assert_allclose(line.get_xydata(), [(0, 3), (1, 2)])


@pytest.mark.parametrize(
  ('last', 'scale'), [(0.65, 'log'), (0.66, 'linear'), (0.0, 'linear')]
)
def test_losses_that_span_a_factor_of_ten_have_a_logarithmic_axis(last, scale):
  run = trained([(0, 6.5), (10, last)])
  run.results = [result(value=v, step=v) for v in (1, 5, 99)]
  figure = curves([run])
  assert panel(figure, LOSS).get_yscale() == scale
  (other,) = [a for a in figure.axes if a.axison and a.get_title() != LOSS]
  assert other.get_yscale() == 'linear'


def test_scores_are_means_inside_a_task_first():
  values = [
    ('cola', 'matthews', 0.0, 100),  # an earlier step
    ('cola', 'matthews', 10.0, 200),
    ('glue_mrpc_v002', 'f1', 20.0, 200),
    ('glue_mrpc_v002', 'accuracy', 40.0, 200),
    ('mine', 'mean_edit', 9.0, 200),
    *perplexity(3, 2),
  ]
  facts = {'steps_per_second': 2.0, 'parameters': 3_000_000}
  other = scored(*values[1:4], label='T5 (V)', steps_per_second=1.0)
  undefined = ('glue_mrpc_v002', 'f1', None, 200)
  others = [
    scored(*values[1:2], label='one is missing', steps_per_second=1.0),
    scored(*values[1:2], undefined, *values[3:], label='x', **facts),
  ]
  figure = of_runs.scores([scored(*values, **facts), other, *others])
  left, right = figure.axes
  assert left.get_ylabel() == 'score at the last step (mean of 2 tasks)'
  assert legend(figure) == ['Syn (R)', 'T5 (V)']
  points = [line.get_xydata()[0].tolist() for line in left.lines]
  assert points == [[2, 20], [1, 20]]
  assert not left.collections  # no error bars of single runs
  # Of the second, the number of parameters is not known.
  assert [line.get_xydata()[0].tolist() for line in right.lines] == [[3, 20]]
  notes = of_runs.without_scores([scored(*values, **facts), other, *others])
  assert [note.rpartition(': ')[2] for note in notes] == [
    'one panel lacks it, since its parameters (millions) cannot be read',
    'a score is missing or not defined (MRPC)',
    'a score is missing or not defined (MRPC)',
  ]
  assert notes[0].startswith(f'No point of T5 (V), {other.name}: ')


def test_a_loss_that_was_never_a_number_has_no_curve():
  diverged = trained([(1, np.nan), (2, np.nan)])
  with pytest.raises(UserError, match='no curve has two points'):
    curves([diverged])
  figure = curves([diverged, trained([(1, 2), (2, 1)], 'T5 (V)')])
  assert legend(figure) == ['T5 (V)']
  (note,) = of_runs.without_curves([diverged])
  assert 'NaN' in note


def test_runs_without_a_curve_are_listed():
  runs = [fake('a', losses={'': {0: 5, 9: 3}}), fake('b', label='T5 (V)')]
  (note,) = of_runs.without_curves(runs)
  assert note.startswith('No curve of T5 (V), b: it has neither event files')


def test_log_perplexity_where_there_are_no_scores_and_error_bars():
  runs = [
    scored(*perplexity(9, last), steps_per_second=speed, parameters=size)
    for last, speed, size in ((1.5, 1.0, 2e6), (2.5, 2.0, 6e6))
  ]
  runs[1].name += '_s1'
  axes = of_runs.scores(runs).axes
  assert axes[0].get_ylabel() == 'log perplexity at the last step'
  for axis, cost, spread in zip(
    axes, (1.5, 4), (0.5**0.5, 8**0.5), strict=True
  ):
    assert axis.lines[0].get_xydata().tolist() == [[cost, 2]]
    across, along = (bars.get_segments()[0] for bars in axis.collections)
    np.testing.assert_allclose(across, [[cost - spread, 2], [cost + spread, 2]])
    ends = [[cost, 2 - 0.5**0.5], [cost, 2 + 0.5**0.5]]
    np.testing.assert_allclose(along, ends)


def test_alpha():
  keys = ['stack', 'layer', 'function', 'head', 'step', 'value']
  values = [0.5, 0.5, 0.7, 0.9, 0.5, 0.5, 0.3, 0.1]
  places = itertools.product(['encoder'], [1], 'RV', [0, 100], [1, 2])
  rows = [
    (stack, layer, function, head, step, value)
    for (stack, layer, function, step, head), value in zip(
      places, values, strict=True
    )
  ]
  figure = of_runs.alpha('Syn (R+V)', pd.DataFrame(rows, columns=keys))
  lines = panel(figure, 'encoder, layer 1').lines
  (mean,) = [line for line in lines if line.get_label() == 'R']
  np.testing.assert_allclose(mean.get_ydata(), [0.5, 0.8])
  assert len(lines) == 2 * (2 + 1)
  assert legend(figure) == ['R', 'V']


@pytest.mark.parametrize(
  ('draw', 'message'),
  [
    (of_runs.curves, 'no curve has two points.*runs/a'),
    (of_runs.scores, 'no evaluation is in runs/a'),
  ],
)
def test_nothing_to_draw(draw, message):
  with pytest.raises(UserError, match=message):
    draw([fake('runs/a', losses={'': {0: 4.0}})])


def test_too_many_curves_for_a_figure():
  results = [
    (f'task_{n}', 'accuracy', 1.0, step) for n in range(301) for step in (1, 2)
  ]
  with pytest.raises(UserError, match=r'301 tasks.* room for 300: .*--tasks'):
    of_runs.curves([scored(*results)])


GLUE = (
  [('glue_cola_v002', 'matthews_corrcoef')]
  + [(f'glue_{name}_v002', 'accuracy') for name in ('sst2', 'qnli', 'rte')]
  + [
    (f'glue_mnli_{name}_v002', 'accuracy') for name in ('matched', 'mismatched')
  ]
  + [(f'glue_{t}_v002', m) for t in ('mrpc', 'qqp') for m in ('f1', 'accuracy')]
  + [('glue_stsb_v002', f'{name}_corrcoef') for name in ('pearson', 'spearman')]
)


def mixture_run():
  """GLUE at two steps, log perplexities of four tasks, and another task."""
  values = []
  for step, value in ((100, 20.0), (200, 40.0)):
    values += [(*score, value, step) for score in GLUE]
    values += [
      (f'glue_{n}', 'neg_log_perplexity', -step / 100 - i, step)
      for i, n in enumerate(('cola_v002', 'rte_v002', 'wnli_v002', 'ax_v002'))
    ]
    values.append(('squad', 'f1', value / 2, step))
    values.append(('squad', 'em', 0.0, step))
  return scored(*[(f'synth_{task}', *rest) for task, *rest in values])


def titles(figure):
  return [axes.get_title() for axes in figure.axes if axes.axison]


def test_averages_replace_the_tasks_of_a_mixture_where_there_are_many():
  figure = curves([mixture_run()])
  mean = 'Log ppl, mean of 4 tasks'
  assert titles(figure) == ['synth_squad\nf1', 'GLUE', mean]
  for title, expected in (('GLUE', [20, 40]), (mean, [2.5, 3.5])):
    (line,) = panel(figure, title).lines
    np.testing.assert_allclose(line.get_ydata(), expected)


def test_an_average_without_a_task_replaces_nothing_and_pages_follow():
  run = mixture_run()
  run.results = [x for x in run.results if 'qnli' not in x.task]
  run.results += [
    dataclasses.replace(x, task=f'more_{x.task}') for x in run.results
  ]
  pages = of_runs.curves([run])
  assert max(len(titles(page)) for page in pages) == 12
  assert 'synth_glue_cola_v002\nmatthews_corrcoef' in sum(
    map(titles, pages), []
  )


@pytest.mark.parametrize('prefix', ['', 'synth_'])
def test_tasks_are_chosen(prefix):
  figure = curves([mixture_run()], [f'{prefix}glue_mrpc_v002', 'squad'])
  assert titles(figure) == [
    'synth_glue_mrpc_v002\nf1',
    'synth_glue_mrpc_v002\naccuracy',
    'synth_squad\nf1',
  ]
  with pytest.raises(UserError, match="'squat'; did you mean 'squad'"):
    of_runs.curves([mixture_run()], ['squat'])
