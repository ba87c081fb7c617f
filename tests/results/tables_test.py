"""Tables: what a cell says, which number is best, and what the notes add."""

import dataclasses
import json
import math
import re
import statistics

import pandas as pd
import pytest
from t5.evaluation import eval_utils

from synth_mtf.errors import UserError
from synth_mtf.results import layouts, tables, views
from synth_mtf.results.records import Result
from tests.results.made_runs import COLA
from tests.results.made_runs import fake as run

NAN = float('nan')
GLUE = {
  'glue_cola_v002': {'matthews_corrcoef': 10.0},
  'glue_sst2_v002': {'accuracy': 20.0},
  'glue_mrpc_v002': {'f1': 30.0, 'accuracy': 50.0},
  'glue_stsb_v002': {'pearson_corrcoef': 70.0, 'spearman_corrcoef': 50.0},
  'glue_qqp_v002': {'f1': 60.0, 'accuracy': 60.0},
  'glue_mnli_matched_v002': {'accuracy': 70.0},
  'glue_mnli_mismatched_v002': {'accuracy': 90.0},
  'glue_qnli_v002': {'accuracy': 90.0},
  'glue_rte_v002': {'accuracy': 100.0},
}
SUPER_GLUE = {
  'super_glue_boolq_v102': {'accuracy': 11.0},
  'super_glue_cb_v102': {'mean_3class_f1': 22.0, 'accuracy': 33.0},
  'super_glue_copa_v102': {'accuracy': 44.0},
  'super_glue_multirc_v102': {'f1': 55.0, 'exact_match': 66.0},
  'super_glue_record_v102': {'f1': 77.0, 'em': 88.0},
  'super_glue_rte_v102': {'accuracy': 99.0},
  'super_glue_wic_v102': {'accuracy': 12.0},
  'super_glue_wsc_v102_simple_eval': {'accuracy': 23.0},
}


def score(
  task, metric, value, step=100, error=None, n=None, split='validation', **more
):
  value = None if value is not None and math.isnan(value) else value
  unit = more.get('unit', 'example')
  return Result(task, split, metric, value, n, unit, error, step)


def cola(value, step=100, **more):
  return score(COLA, 'matthews_corrcoef', value, step, **more)


def log_perplexity(value, step=100, task='synth_lm1b'):
  metric = 'neg_log_perplexity'
  return score(task, metric, value, step, n=70, unit='token')


def scores_of(tasks, prefix='synth_'):
  return [
    score(prefix + task, metric, value)
    for task, metrics in tasks.items()
    for metric, value in metrics.items()
  ]


def grid(*runs, layout=None, checkpoint='last', **options):
  return views.grid(tables.make(runs, layout, checkpoint), **options)


def cells(*runs, **options):
  """The text of each cell, by label and header."""
  shown = grid(*runs, **options)
  return {
    label: dict(
      zip(shown.headers[1:], (text.replace('**', '') for text in row))
    )
    for label, *row in shown.rows
  }


def seeds(*values, label='Syn (R)', **facts):
  return [
    run(
      f'{label}/run{seed}',
      *([] if value is None else [cola(value)]),
      label=label,
      seed=seed,
      **facts,
    )
    for seed, value in enumerate(values)
  ]


def test_a_column_per_task_with_all_its_metrics_and_the_average():
  shown = grid(run('a', *scores_of(GLUE)))
  assert shown.headers == [
    'Model', 'GLUE', 'CoLA', 'SST', 'MRPC', 'STSB', 'QQP', 'MNLI', 'QNLI',
    'RTE', 'Steps/s', 'Params',
  ]  # fmt: skip
  row = cells(run('a', *scores_of(GLUE)))['a']
  assert row['MRPC'] == '30.0/50.0'
  assert row['MNLI'] == '70.0/90.0'
  assert row['GLUE'] == f'{(10 + 20 + 40 + 60 + 60 + 80 + 90 + 100) / 8:.1f}'
  assert row['Params'] == '-'
  assert any('MRPC F1/accuracy' in note for note in shown.notes)


@pytest.mark.parametrize('prefix', ['', 'synth_'])
def test_averages_are_t5s(prefix):
  both = {**GLUE, **SUPER_GLUE}
  columns = {
    eval_utils.METRIC_NAMES[f'{task}/{metric}'].name: value
    for task, metrics in both.items()
    for metric, value in metrics.items()
  }
  expected = eval_utils.compute_avg_glue(pd.DataFrame([columns]))
  table = tables.make([run('a', *scores_of(both, prefix))])
  for key in ('GLUE', 'SuperGLUE'):
    assert table.numbers['mean']['a', key] == pytest.approx(
      expected[f'Average {key} Score'][0]
    )


def test_what_is_missing_is_a_dash():
  hole = {task: GLUE[task] for task in GLUE if 'qnli' not in task}
  hole['glue_qqp_v002'] = {'f1': 60.0}
  whole = run('whole', *scores_of(GLUE))
  row = cells(whole, run('hole', *scores_of(hole)))['hole']
  assert (row['QNLI'], row['QQP'], row['GLUE']) == ('-', '60.0/-', '-')
  assert row['RTE'] == '100.0'


def test_what_is_not_defined_is_a_dash_and_counts_as_0():
  stsb = {'pearson_corrcoef': NAN, 'spearman_corrcoef': 50.0}
  one = run('a', *scores_of({**GLUE, 'glue_stsb_v002': stsb}))
  row = cells(one, layout='glue')['a']
  assert row['STSB'] == '-/50.0'
  assert row['GLUE'] == f'{(10 + 20 + 40 + 25 + 60 + 80 + 90 + 100) / 8:.1f}'
  notes = grid(one, layout='glue').notes
  assert 'a: not defined in at least one run: STSB.' in notes


def test_an_unknown_task_has_a_column_of_its_own():
  assert cells(run('a', score('mine', 'bleu', 2.0)))['a']['mine/bleu'] == '2.0'


def test_several_seeds_are_mean_and_standard_deviation():
  runs = seeds(10.0, 20.0, 60.0, parameters=1000)
  row = cells(*runs)['Syn (R)']
  assert row['CoLA'] == f'30.0±{statistics.stdev([10, 20, 60]):.1f}'
  assert row['Params'] == '0.00M'
  assert (
    'Syn (R): mean±standard deviation over 3 runs (seeds 0, 1, 2).'
    in grid(*runs).notes
  )


def test_a_score_that_one_seed_lacks():
  runs = seeds(10.0, None, 60.0)
  assert cells(*runs)['Syn (R)']['CoLA'] == '-'
  note = 'Syn (R): missing in at least one run: CoLA.'
  assert note in grid(*runs).notes


def test_what_differs_in_more_than_a_seed_is_another_row():
  runs = [*seeds(1.0, 3.0), *seeds(5.0, label='T5 (V)')]
  shown = {label: row['CoLA'] for label, row in cells(*runs).items()}
  assert shown == {'Syn (R)': '2.0±1.4', 'T5 (V)': '5.0'}


def test_numbers_need_all_runs():
  def numbers(*found):
    runs = [
      run(str(i), *([cola(*one)] if one else []), label='R', seed=i)
      for i, one in enumerate(found)
    ]
    number = tables.make(runs).numbers.loc['R', 'CoLA']
    return [None if pd.isna(x) else pytest.approx(x) for x in number]

  def cola(value, error, n):
    return score(COLA, 'matthews_corrcoef', value, error=error, n=n)

  known = (2.0, 3.0, 50)
  assert numbers(known, (6.0, 4.0, 50)) == [4.0, 8**0.5, 12.5**0.5, 50]
  assert numbers(known, known, None) == [None] * 4
  assert numbers(known, known, (NAN, None, 50)) == [None, None, None, 50]
  assert numbers(known, known, (6.0, None, 49)) == [
    *(10 / 3, (16 / 3) ** 0.5),
    *(None, None),
  ]
  assert numbers(known) == [2.0, None, 3.0, 50]


def three_checkpoints():
  """CoLA is best at 200, MRPC, by the mean of its metrics, at 100."""
  mrpc = {100: (80.0, 70.0), 200: (90.0, 50.0)}
  return run(
    'a',
    *(cola(value, step) for step, value in ((100, 1), (200, 5), (300, 2))),
    *(
      score('synth_glue_mrpc_v002', metric, value, step)
      for step, pair in mrpc.items()
      for metric, value in zip(('f1', 'accuracy'), pair)
    ),
  )


@pytest.mark.parametrize(
  ('checkpoint', 'expected', 'caption'),
  [
    ('last', ('2.0', '-/-'), 'last checkpoint evaluated (step 300)'),
    ('best', ('5.0', '80.0/70.0'), 'of each task (step 100-200)'),
    ('200', ('5.0', '90.0/50.0'), 'at step 200 (step 200)'),
  ],
)
def test_checkpoints(checkpoint, expected, caption):
  row = cells(three_checkpoints(), checkpoint=checkpoint)['a']
  assert (row['CoLA'], row['MRPC']) == expected
  assert caption in grid(three_checkpoints(), checkpoint=checkpoint).caption


@pytest.mark.parametrize(
  ('scores', 'step'),
  [
    pytest.param({200: [1.0], 100: [1.0]}, 100, id='the earliest'),
    pytest.param({100: [9.0], 200: [1.0, 1.0]}, 200, id='one is missing'),
    pytest.param({100: [NAN, 9.0], 200: [-5, -5]}, 200, id='not defined'),
  ],
)
def test_the_best_of_several(scores, step):
  found = [
    score('glue_mrpc_v002', metric, value, at)
    for at, values in scores.items()
    for metric, value in zip(('accuracy', 'f1'), values)
  ]
  if all(len(values) == 1 for values in scores.values()):
    found = [cola(value, at) for at, (value,) in scores.items()]
  table = tables.make([run('a', *found)], checkpoint='best')
  assert set(table.scores.step) == {step}


def test_the_best_log_perplexity_is_the_lowest():
  found = [log_perplexity(v, s) for s, v in ((1, -3.0), (2, -2.0), (3, -4.0))]
  one = run('a', *found)
  assert cells(one, checkpoint='best')['a']['Log ppl'] == '2.000'
  row = cells(one, checkpoint='best', layout='lm')['a']
  assert (row['LM1B'], row['Log ppl']) == ('7.39', '2.000')


def test_tokens_and_examples_have_last_checkpoints_of_their_own():
  one = run('a', cola(1.0, 100), log_perplexity(-2.0, 200))
  row = cells(one)['a']
  assert (row['CoLA'], row['Log ppl']) == ('1.0', '2.000')


@pytest.mark.parametrize('checkpoint', ['first', '-1', '1.5', ''])
def test_what_is_no_checkpoint(checkpoint):
  with pytest.raises(UserError, match='expected best, last, or a step'):
    grid(run('a', cola(1.0)), checkpoint=checkpoint)


def test_a_step_that_was_not_evaluated():
  with pytest.raises(
    UserError, match='a has not been .*; expected one of 100,'
  ):
    grid(run('a', cola(1.0)), checkpoint='70')
  with pytest.raises(UserError, match=r'b has not been .* at that step\.$'):
    grid(run('a', cola(1.0)), run('b'), checkpoint='100')


def test_a_layout_of_which_there_is_nothing():
  with pytest.raises(UserError, match=f'Evaluated tasks: {COLA}'):
    grid(run('a', cola(1.0)), layout='translation')
  with pytest.raises(UserError, match='None of the runs has been evaluated'):
    grid(run('b'), layout='glue')
  assert 'Nothing has been evaluated' in grid(run('b')).caption


def test_the_validation_split_comes_first():
  test = cola(9.0, 200, split='test')
  assert cells(run('a', test))['a']['CoLA'] == '9.0'
  assert cells(run('a', test, cola(1.0, 100)))['a']['CoLA'] == '-'
  assert cells(run('a', test, cola(2.0, 200)))['a']['CoLA'] == '2.0'


def test_scores_of_different_splits_are_noted():
  runs = run('a', cola(1.0, split='test')), run('b', cola(2.0))
  assert (
    'CoLA has scores of different tasks or splits: '
    'glue_cola_v002 (test), glue_cola_v002 (validation).'
  ) in grid(*runs).notes


def test_a_share_in_percent_has_its_error_in_percent():
  found = score('ag_news_class', 'sequence_accuracy', 0.25, error=0.02, n=400)
  table = tables.make([run('a', found)], 'classification')
  number = table.numbers.loc['a', 'AG News']
  assert number['mean'] == 25.0
  assert number['standard_error'] == pytest.approx(2.0)


def test_optional_columns_are_there_if_a_run_has_them():
  german = score('wmt14_ende_v003', 'bleu', 20.0)
  romanian = score('wmt16_enro_v003', 'bleu', 30.0)
  headers = ['Model', 'Params', 'En-De', 'En-Fr']
  assert grid(run('a', german), layout='translation').headers == headers
  shown = grid(run('a', german), run('b', romanian), layout='translation')
  assert shown.headers == [*headers, 'En-Ro']


def test_speed_over_t5():
  facts = {'parameters': 12_345_678}
  r = run('r', steps_per_second=5.0, label='Syn (R)', **facts)
  assert 'x T5' not in grid(r, layout='speed').headers
  v = run('v', steps_per_second=4.0, label='T5 (V)', **facts)
  row = cells(r, v, run('x'), layout='speed')
  assert [row[x]['x T5'] for x in ('Syn (R)', 'T5 (V)', 'x')] == [
    *('1.25', '1.00', '-'),
  ]
  assert row['Syn (R)']['Params'] == '12M'


def test_a_run_that_went_on():
  note = 'a is at step 1,300, which has not been evaluated.'
  assert note in grid(run('a', cola(1.0), steps=[1300])).notes
  done = run('a', cola(1.0), cola(1.0, 1300), steps=[1300])
  assert note not in grid(done).notes


def test_the_best_of_each_number_is_marked():
  a, b = (
    run(
      name,
      score('glue_mrpc_v002', 'f1', f1),
      score('glue_mrpc_v002', 'accuracy', accuracy),
      cola(matthews),
      log_perplexity(-f1),
    )
    for name, f1, accuracy, matthews in (('a', 1, 9, 3.01), ('b', 2, 8, 3.02))
  )

  def best(shown, header):
    column = list(shown.headers).index(header)
    return [re.findall(r'\*\*(.*?)\*\*', row[column]) for row in shown.rows]

  shown = grid(a, b)
  assert best(shown, 'MRPC')[:2] == [['9.0'], ['2.0']]
  assert best(shown, 'Log ppl')[:2] == [['1.000'], []]
  assert best(shown, 'CoLA')[:2] == [[], []]  # both are printed as 3.0
  assert best(grid(a), 'MRPC')[0] == []


def test_errors_and_counts():
  sst = score('glue_sst2_v002', 'accuracy', 50.0, error=7.9, n=40)
  other = score('glue_sst2_v002', 'accuracy', 60.0, n=50)
  runs = run('a', sst, log_perplexity(-1.0)), run('b', other)
  shown = cells(*runs, errors=True)
  assert (shown['a']['SST'], shown['b']['SST']) == ('50.0 (7.9)', '60.0')
  assert shown['n']['SST'] == '40-50'
  assert shown['n']['Log ppl'] == '70 tokens'
  assert cells(*runs)['n']['Log ppl'] == ''


def test_the_training_split_is_warned_of():
  train = cola(1.0, 1, split='train')
  assert 'of the training split' in ' '.join(grid(run('a', train)).notes)
  shown = grid(run('a', train, cola(7.0)))
  assert 'training split' not in ' '.join(shown.notes)


def test_the_paper_and_the_difference():
  scores = scores_of({**GLUE, 'glue_cola_v002': {'matthews_corrcoef': 40.0}})
  runs = run('a', *scores, label='Syn (R)'), run('b', cola(1.0))
  shown = cells(*runs, layout='glue', paper=True)
  assert list(shown) == ['Syn (R)', '  the paper', '  difference', 'b']
  assert shown['  the paper']['CoLA'] == '41.2'
  assert shown['  difference']['CoLA'] == '-1.2'
  assert shown['  difference']['MRPC'] == '-55.9/-29.4'
  shown = cells(*seeds(1.0), layout='glue', paper=True)
  assert shown['  difference']['SST'] == '-'


MEASURE = layouts.Measure('accuracy', ['t/accuracy'])


def significant(measures, **models):
  """What is noted of a column; a model is a (value, error, n) per measure."""
  measures = [
    dataclasses.replace(one, tags=[f't/{number}'])
    for number, one in enumerate(measures)
  ]
  runs = [
    run(
      name,
      *(
        score('t', str(number), value, error=error, n=n)
        for number, (value, error, n) in enumerate(found)
      ),
    )
    for name, found in models.items()
  ]
  layouts.LAYOUTS['test'] = layouts.Layout(
    '', [layouts.Column('X', measures, 'X')]
  )
  try:
    notes = tables.make(runs, 'test')
  finally:
    del layouts.LAYOUTS['test']
  begin = 'Significant differences'
  found = [note for note in views.notes(notes) if note.startswith(begin)]
  return [note.partition('): ')[2].rstrip('.') for note in found]


@pytest.mark.parametrize(
  ('better', 'expected'),
  [(64.5, []), (65.0, []), (65.5, ['X (b 65.5, a 50.0)'])],
)
def test_three_standard_errors_of_a_difference_are_significant(
  better, expected
):
  """That of errors of 3 and 4 is 5."""
  a, b = [(50.0, 3.0, None)], [(better, 4.0, None)]
  assert significant([MEASURE], a=a, b=b) == expected


@pytest.mark.parametrize(
  ('f1', 'accuracy', 'expected'),
  [
    (51.0, 90.0, ['X (b 90.0, a 60.0)']),
    (80.0, 61.0, ['X (b 80.0, a 50.0)']),
    (80.0, 90.0, ['X (b 80.0, a 50.0)']),
    (51.0, 61.0, []),
  ],
)
def test_the_first_metric_with_a_significant_difference_is_noted(
  f1, accuracy, expected
):
  a, b = (
    [(x, 1.0, None), (y, 1.0, None)] for x, y in ((50, 60), (f1, accuracy))
  )
  both = [MEASURE, dataclasses.replace(MEASURE, name='F1')]
  assert significant(both, a=a, b=b) == expected


def test_lower_may_be_better():
  lower = layouts.Measure('log perplexity', (), '{:.3f}'.format, -1)
  found = {x: [(y, 0.01, 70_000)] for x, y in (('a', 3), ('b', 2), ('c', 2.5))}
  expected = 'X (b 2.000, a 3.000, n = 70,000)'
  assert significant([lower], **found) == [expected]
  neither = layouts.Measure('length', (), better=0)
  assert significant([neither], **found) == []


@pytest.mark.parametrize(
  'scores',
  [
    pytest.param([(10.0, None, 64), (90.0, None, 64)], id='no errors'),
    pytest.param([(10.0, 1.0, 64), (90.0, None, 64)], id='one error'),
    pytest.param([(10.0, 1.0, 64), (NAN, None, 64)], id='one score'),
    pytest.param([(10.0, 0.0, 64), (10.0, 0.0, 64)], id='the same'),
    pytest.param([(10.0, 1.0, 64)], id='one model'),
  ],
)
def test_what_is_inconclusive_is_not_noted(scores):
  models = {f'm{number}': [one] for number, one in enumerate(scores)}
  assert significant([MEASURE], **models) == []


def test_csv_has_the_numbers_in_full():
  one, two = seeds(1.0, 2.0)
  one.results += [score('glue_mrpc_v002', 'f1', 1 / 3, error=0.5, n=9)]
  one.results += [score('glue_mrpc_v002', 'accuracy', 2.0)]
  two.results += [score('glue_mrpc_v002', 'f1', 1 / 3, error=0.5, n=9)]
  table = tables.make([one, two])
  header, line = views.csv(table).splitlines()
  fields = dict(zip(header.split(','), line.split(',')))
  assert (fields['model'], fields['runs']) == ('Syn (R)', '2')
  assert float(fields['CoLA']) == 1.5
  assert float(fields['CoLA sd']) == pytest.approx(0.5**0.5)
  assert float(fields['MRPC F1']) == 1 / 3
  assert fields['MRPC accuracy'] == ''
  header, line = views.csv(table, errors=True).splitlines()
  fields = dict(zip(header.split(','), line.split(',')))
  assert (fields['MRPC F1 n'], fields['MRPC F1 se']) == ('9', '0.5')


def test_json_says_where_each_number_comes_from():
  table = tables.make(seeds(1.0, None, steps_per_second=4.0))
  written = json.loads(views.as_json(table, paper=True))
  assert written['checkpoint'] == 'at the last checkpoint evaluated'
  assert written['notes'] == views.notes(table, paper=True)
  (model,) = written['models']
  assert [one['seed'] for one in model['runs']] == [0, 1]
  assert model['numbers']['Steps/s']['runs'] == [{'value': 4.0}] * 2
  assert model['numbers']['CoLA'] == {
    'mean': None,
    'standard_deviation': None,
    'runs': [
      {
        'value': 1.0,
        'n': None,
        'unit': 'example',
        'standard_error': None,
        'task': COLA,
        'split': 'validation',
        'metric': 'matthews_corrcoef',
        'step': 100,
      },
      None,
    ],
    'paper': 41.2,
  }
