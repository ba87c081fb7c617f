"""Tables: what a cell says, which number is best, and what the notes add."""

import json
import math
import re
import statistics

import pandas as pd
import pytest
from t5.evaluation import eval_utils

from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.results import tables, views
from synth_mtf.results.layouts import LAYOUTS
from tests.results.made_runs import COLA, fake as run, result

NAN = float('nan')


def tags(layout):
  columns = [column for column in LAYOUTS[layout].columns if not column.over]
  return [tags[0] for column in columns for tags in column.tags.values()]


GLUE = dict(
  zip(
    tags('glue'), (10, 20, 30, 50, 70, 50, 60, 60, 70, 90, 90, 100), strict=True
  )
)
SUPER_GLUE = dict(
  zip(
    tags('superglue'), (11, 22, 33, 44, 55, 66, 77, 88, 99, 12, 23), strict=True
  )
)
QNLI, QQP = 'glue_qnli_v002/accuracy', 'glue_qqp_v002/accuracy'
F1, ACCURACY = 'glue_mrpc_v002/f1', 'glue_mrpc_v002/accuracy'


def score(tag, value, step=100, error=None, n=None, **more):
  task, _, metric = tag.rpartition('/')
  value = None if value is not None and math.isnan(value) else value
  about = {'standard_error': error, 'n': n, **more}
  return result(task=task, metric=metric, value=value, step=step, **about)


def cola(value, step=100, **more):
  return result(value=value, step=step, **more)


def log_perplexity(value, step=100, task='synth_lm1b'):
  tag = f'{task}/neg_log_perplexity'
  return score(tag, value, step, n=70, unit='token')


def scores_of(values, prefix='synth_'):
  return [score(prefix + tag, value) for tag, value in values.items()]


def grid(*runs, layout=None, checkpoint='last', **options):
  return views.grid(tables.make(runs, layout, checkpoint), **options)


def cells(*runs, **options):
  """The text of each cell, by label and header."""
  shown = grid(*runs, **options)
  plain = [[text.replace('**', '') for text in row] for row in shown.rows]
  return {row[0]: dict(zip(shown.headers, row, strict=True)) for row in plain}


def seeds(*values, label='Syn (R)', **facts):
  return [
    run(f'{label}/run{seed}', *found, label=label, seed=seed, **facts)
    for seed, value in enumerate(values)
    for found in [[] if value is None else [cola(value)]]
  ]


def test_an_average_of_the_largest_numbers_is_not_a_number():
  glue = LAYOUTS['glue'].columns[0]
  names = [name for column in glue.over for name in column.tags]
  numbers = dict.fromkeys(names, 1e308)
  average = glue.average(numbers)
  assert average is not None and math.isnan(average)


def test_a_column_per_task_with_all_its_metrics_and_the_average():
  shown = grid(run('a', *scores_of(GLUE)))
  assert shown.headers == [
    *('Model', 'GLUE', 'CoLA', 'SST', 'MRPC', 'STSB', 'QQP', 'MNLI', 'QNLI'),
    *('GLUE RTE', 'Steps/s', 'Params'),
  ]
  row = cells(run('a', *scores_of(GLUE)))['a']
  assert row['MRPC'] == '30.0/50.0'
  assert row['MNLI'] == '70.0/90.0'
  assert row['GLUE'] == f'{(10 + 20 + 40 + 60 + 60 + 80 + 90 + 100) / 8:.1f}'
  assert row['Params'] == '-'
  assert any('MRPC F1/accuracy' in note for note in shown.notes)


@pytest.mark.parametrize('prefix', ['', 'synth_'])
def test_averages_are_t5s_and_the_papers(prefix):
  both = {**GLUE, **SUPER_GLUE}
  names = {eval_utils.METRIC_NAMES[tag].name: both[tag] for tag in both}
  expected = eval_utils.compute_avg_glue(pd.DataFrame([names]))
  table = tables.make([run('a', *scores_of(both, prefix))])
  for key in ('GLUE', 'SuperGLUE'):
    average = expected[f'Average {key} Score'][0]
    assert table.numbers['mean']['a', key] == pytest.approx(average)


def test_what_is_missing_is_a_dash():
  hole = {tag: GLUE[tag] for tag in GLUE if tag not in (QNLI, QQP)}
  whole = run('whole', *scores_of(GLUE))
  row = cells(whole, run('hole', *scores_of(hole)))['hole']
  assert (row['QNLI'], row['QQP'], row['GLUE']) == ('-', '60.0/-', '-')
  assert row['GLUE RTE'] == '100.0'


def test_what_is_not_defined_is_a_dash_and_so_is_its_average():
  values = {**GLUE, 'glue_stsb_v002/pearson_corrcoef': NAN}
  one = run('a', *scores_of(values))
  row = cells(one, layout='glue')['a']
  assert (row['STSB'], row['GLUE']) == ('-/50.0', '-')
  notes = grid(one, layout='glue').notes
  assert 'a: not defined in at least one run: GLUE, STSB.' in notes


def test_a_note_says_why_a_score_is_not_defined():
  score = result(
    task='synth_glue_stsb_v002',
    metric='pearson_corrcoef',
    value=None,
    reason='1 of 9 predictions read as NaN or infinity',
  )
  notes = grid(run('a', score)).notes
  assert (
    'a: not defined in at least one run: STSB (1 of 9 predictions read as NaN '
    'or infinity).'
  ) in notes


def test_an_unknown_task_has_columns_of_its_own():
  bleu, share = score('mine/bleu', 2.0), score('mine/sequence_accuracy', 0.5)
  row = cells(run('a', bleu, share))['a']
  assert (row['mine/bleu'], row['mine/sequence_accuracy']) == ('2.0', '50.0')
  row = cells(run('a', share, log_perplexity(-2.0, task='mine')))['a']
  assert [*row] == ['Model', 'Log ppl', 'Steps/s', 'Params']


def test_several_seeds_are_mean_and_standard_deviation():
  runs = seeds(10.0, 20.0, 60.0, parameters=1000)
  row = cells(*runs)['Syn (R)']
  assert row['CoLA'] == f'30.0±{statistics.stdev([10, 20, 60]):.1f}'
  assert row['Params'] == '0.00M'
  mean = 'Syn (R): mean±standard deviation over 3 runs'
  names = 'Syn (R)/run0, Syn (R)/run1, Syn (R)/run2'
  assert f'{mean} ({names}).' in grid(*runs).notes
  runs[1].results = []
  assert cells(*runs)['Syn (R)']['CoLA'] == '-'


@pytest.mark.parametrize(
  ('found', 'expected'),
  [
    ([(2, 3, 50)], [2, None, 3, 50]),
    ([(2, 3, 50), (6, 4, 50)], [4, 8**0.5, 12.5**0.5, 50]),
    ([(2, 3, 50), (2, 3, 50), None], [None] * 4),
    ([(2, 3, 50), (2, 3, 50), (NAN, None, 50)], [None, None, None, 50]),
    ([(2, 3, 50), (6, None, 49)], [4, 8**0.5, None, None]),
  ],
)
def test_numbers_need_all_runs(found, expected):
  tag = f'{COLA}/matthews_corrcoef'
  runs = [
    run(str(seed), *scores, label='R', seed=seed)
    for seed, one in enumerate(found)
    for scores in [[score(tag, one[0], 100, *one[1:])] if one else []]
  ]
  numbers = tables.make(runs).numbers.loc['R', 'CoLA']
  assert [None if pd.isna(x) else pytest.approx(x) for x in numbers] == expected


@pytest.mark.parametrize(
  ('checkpoint', 'expected', 'caption'),
  [
    ('last', ('2.0', '-/-'), 'checkpoint: last (step 300)'),
    ('best', ('5.0', '80.0/70.0'), 'checkpoint: best (step 100-200)'),
    ('200', ('5.0', '90.0/50.0'), 'checkpoint: 200 (step 200)'),
  ],
)
def test_checkpoints(checkpoint, expected, caption):
  """CoLA is best at 200, MRPC, by the mean of its metrics, at 100."""
  one = run(
    'a',
    *(cola(value, step) for step, value in ((100, 1), (200, 5), (300, 2))),
    *(score(F1, value, step) for step, value in ((100, 80), (200, 90))),
    *(score(ACCURACY, value, step) for step, value in ((100, 70), (200, 50))),
  )
  row = cells(one, checkpoint=checkpoint)['a']
  assert (row['CoLA'], row['MRPC']) == expected
  assert caption in grid(one, checkpoint=checkpoint).caption


@pytest.mark.parametrize(
  ('scores', 'step'),
  [
    pytest.param({200: [1, 1], 100: [1, 1]}, 100, id='the earliest'),
    pytest.param({100: [9], 200: [1, 1]}, 200, id='one is missing'),
    pytest.param({100: [NAN, 9], 200: [-5, -5]}, 200, id='not defined'),
  ],
)
def test_the_best_of_several(scores, step):
  found = [
    score(tag, value, at)
    for at, values in scores.items()
    for tag, value in zip((ACCURACY, F1), values, strict=False)
  ]
  table = tables.make([run('a', *found)], checkpoint='best')
  assert set(table.scores.step) == {step}


def test_the_best_log_perplexity_and_the_best_edit_distance_are_the_lowest():
  found = [log_perplexity(v, s) for s, v in ((1, -3.0), (2, -2.0), (3, -4.0))]
  edits = [score('mine/mean_edit', step, step) for step in (1, 2)]
  one = run('a', *found, *edits)
  row = cells(one, checkpoint='best')['a']
  assert (row['Log ppl'], row['mine/mean_edit']) == ('2.000', '1.0')
  row = cells(one, checkpoint='best', layout='lm')['a']
  assert (row['LM1B per token'], row['Log ppl']) == ('7.39', '2.000')
  assert row['LM1B per word'] == '-'
  far = run('a', log_perplexity(-999.0))
  assert cells(far, layout='lm')['a']['LM1B per token']


def test_perplexity_per_word_has_a_column_in_its_layout_alone():
  per_word = score('synth_lm1b/neg_log_perplexity_per_word', -3.0, 100)
  one = run('a', log_perplexity(-2.0), per_word)
  row = cells(one, layout='lm')['a']
  assert (row['LM1B per token'], row['LM1B per word']) == ('7.39', '20.09')
  assert 'neg_log' not in ' '.join(cells(one)['a'])


def test_tokens_and_examples_have_last_checkpoints_of_their_own():
  row = cells(run('a', cola(1.0, 100), log_perplexity(-2.0, 200)))['a']
  assert (row['CoLA'], row['Log ppl']) == ('1.0', '2.000')


@pytest.mark.parametrize(
  ('checkpoint', 'message'),
  [
    *((word, 'best, last, or a step') for word in ('first', '-1', '1.5', '')),
    *(
      (step, r'runs were evaluated \(there is none\)') for step in ('70', '100')
    ),
  ],
)
def test_what_is_no_checkpoint(checkpoint, message):
  with pytest.raises(UserError, match=message):
    grid(run('a', cola(1.0)), run('b'), checkpoint=checkpoint)


def test_a_layout_of_which_there_is_nothing():
  with pytest.raises(UserError, match=f'Evaluated tasks: {COLA}'):
    grid(run('a', cola(1.0)), layout='translation')
  with pytest.raises(UserError, match='Evaluated tasks: none'):
    grid(run('b'), layout='glue')
  assert 'Nothing has been evaluated' in grid(run('b')).caption


@pytest.mark.parametrize(
  ('others', 'shown'),
  [([], '9.0'), ([cola(1.0, 100)], '9.0'), ([cola(2.0, 200)], '2.0')],
)
def test_at_one_step_the_validation_split_comes_first(others, shown):
  one = run('a', cola(9.0, 200, split='test'), *others)
  assert cells(one)['a']['CoLA'] == shown


def test_scores_of_different_splits_are_noted():
  runs = run('a', cola(1.0, split='test')), run('b', cola(2.0))
  assert (
    'CoLA has scores of different tasks or splits: '
    'glue_cola_v002 (test), glue_cola_v002 (validation).'
  ) in grid(*runs).notes


def test_a_share_in_percent_has_its_error_in_percent():
  found = score('ag_news_class/sequence_accuracy', 0.25, error=0.02, n=400)
  table = tables.make([run('a', found)], 'classification')
  number = table.numbers.loc['a', 'AG News']
  assert number['mean'] == 25.0
  assert number['standard_error'] == pytest.approx(2.0)


def test_optional_columns_are_there_if_a_run_has_them():
  german, romanian = (
    run(task, score(f'{task}/bleu', 20.0))
    for task in ('wmt14_ende_v003', 'wmt16_enro_v003')
  )
  headers = ['Model', 'Params', 'En-De', 'En-Fr']
  assert grid(german, layout='translation').headers == headers
  shown = grid(german, romanian, layout='translation')
  assert shown.headers == [*headers, 'En-Ro']


def test_speed_over_t5():
  r = run('r', steps_per_second=5.0, label='Syn (R)', parameters=12_345_678)
  assert 'x T5' not in grid(r, layout='speed').headers
  v = run('v', steps_per_second=4.0, label='T5 (V)', products=2e6)
  row = cells(r, v, run('x'), layout='speed')
  speeds = [row[x]['x T5'] for x in ('Syn (R)', 'T5 (V)', 'x')]
  assert speeds == ['1.25', '1.00', '-']
  assert row['Syn (R)']['Params'] == '12M'
  assert [row[x]['Products'] for x in ('T5 (V)', 'x')] == ['2.00M', '-']


def test_the_best_of_each_number_is_marked():
  a, b = (
    run(
      name,
      *(score(F1, f1), score(ACCURACY, accuracy)),
      *(cola(matthews), log_perplexity(-f1)),
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
  sst = 'glue_sst2_v002/accuracy'
  a = run('a', score(sst, 50.0, error=7.9, n=40), log_perplexity(-1.0))
  b = run('b', score(sst, 60.0, n=50))
  shown = cells(a, b, errors=True)
  assert (shown['a']['SST'], shown['b']['SST']) == ('50.0 (7.9)', '60.0')
  assert shown['n']['SST'] == '40-50'
  assert shown['n']['Log ppl'] == '70 tokens'
  question = score('super_glue_multirc_v102/f1', 9.0, n=2, unit='question')
  assert cells(run('a', question))['n']['MultiRC'] == '2 questions'


def test_the_training_split_is_warned_of():
  train = cola(1.0, 1, split='train')
  assert 'of the training split' in ' '.join(grid(run('a', train)).notes)
  shown = grid(run('a', train, cola(7.0)))
  assert 'training split' not in ' '.join(shown.notes)


def test_the_paper_and_the_difference():
  scores = scores_of({**GLUE, 'glue_cola_v002/matthews_corrcoef': 40.0})
  runs = run('a', *scores, label='Syn (R)'), run('b', cola(1.0))
  shown = cells(*runs, layout='glue', paper=True)
  assert list(shown) == [
    *('Syn (R)', '  the paper', '  difference', 'b', '  no row of the paper')
  ]
  assert shown['  the paper']['CoLA'] == '41.2'
  assert shown['  difference']['CoLA'] == '-1.2'
  assert shown['  difference']['MRPC'] == '-55.9/-29.4'
  shown = cells(*seeds(1.0), layout='glue', paper=True)
  assert shown['  difference']['SST'] == '-'
  notes = grid(*runs, layout='glue', paper=True).notes
  assert 'b: no row of the paper: b has no configuration.' in notes
  for task, layout, published in (
    ('synth_text_span_corruption', 'speed', '-'),
    ('c4_span_corruption', None, '1.972'),
    ('synth_lm1b', None, '-'),
    ('synth_lm1b', 'lm', '-'),
  ):
    one = run('a', log_perplexity(-2.0, task=task), label='Syn (R)')
    shown = cells(one, layout=layout, paper=True)['  the paper']
    assert (shown['Log ppl'], shown['Params']) == (published, '254M')


def test_single_runs_are_said_to_say_nothing():
  note = 'One run says nothing about its model'
  for runs, expected in (
    ([run('a', cola(1.0)), run('b', cola(99.0))], True),
    ([*seeds(1.0, 2.0), run('b', cola(99.0))], True),
    ([*seeds(1.0, 2.0), *seeds(3.0, 4.0, label='T5 (V)')], False),
    ([run('a', cola(1.0))], False),
  ):
    assert (note in ' '.join(grid(*runs).notes)) == expected


@pytest.mark.parametrize('errors', [False, True])
def test_csv_has_the_numbers_in_full(errors):
  one, two = seeds(1.0, 2.0)
  for each in (one, two):
    each.results.append(score(F1, 1 / 3, error=0.5, n=9))
  one.results.append(score(ACCURACY, 2.0))
  header, line = views.csv(tables.make([one, two]), errors).splitlines()
  fields = dict(zip(header.split(','), line.split(','), strict=True))
  assert (fields['model'], fields['runs']) == ('Syn (R)', '2')
  assert float(fields['CoLA']) == 1.5
  assert float(fields['CoLA sd']) == pytest.approx(0.5**0.5)
  assert float(fields['MRPC F1']) == 1 / 3
  assert fields['MRPC accuracy'] == ''
  known = (fields.get('MRPC F1 n'), fields.get('MRPC F1 se'))
  assert known == (('9', '0.5') if errors else (None, None))


def test_no_name_is_a_formula():
  runs = [run(name, score(F1, 1.0)) for name in ('=cmd|x', '+1')]
  _, *lines = views.csv(tables.make(runs)).splitlines()
  assert [line[:2] for line in lines] == ["'=", "'+"]


def test_json_says_where_each_number_comes_from():
  table = tables.make(seeds(1.0, None, steps_per_second=4.0))
  written = json.loads(views.as_json(table, paper=True))
  assert written['checkpoint'] == 'last'
  assert written['notes'] == views.notes(table, paper=True)
  (model,) = written['models']
  assert [one['seed'] for one in model['runs']] == [0, 1]
  assert model['numbers']['Steps/s']['runs'] == [{'value': 4.0}] * 2
  assert model['numbers']['CoLA'] == {
    'mean': None,
    'standard_deviation': None,
    'runs': [vars(cola(1.0)), None],
    'paper': 41.2,
  }


def test_scores_are_collected_once_for_thousands_of_columns():
  numbers = [score(f'task_{n}/accuracy', n, n=7) for n in range(50)]
  table = tables.make([run('a', *numbers), run('b', numbers[0])])
  assert table.scores is table.scores
  by_column = table.scores_by_column
  assert by_column is table.scores_by_column
  for column in table.columns:
    expected = table.scores[table.scores.column == column.key]
    assert expected.equals(by_column.get(column.key, table.scores[:0]))
  assert views.grid(table).rows[-1][1:51] == ['7'] * 50


def test_the_caption_names_generated_data_only_where_there_is_some():
  for data in ('', paths.GENERATED):
    caption = grid(run('a', cola(1.0, data=data))).caption
    assert ('Data: ' in caption) == bool(data)
    assert (paths.GENERATED in caption) == bool(data)


def keys_of(table):
  return [c.key for c in table.columns if c.key.startswith('Log ppl')]


def test_the_perplexities_of_a_mixture_are_one_column_by_default():
  tasks = [f'synth_task_{number}' for number in range(4)]
  values = [*zip(tasks, (1.0, 2.0, 3.0, 6.0), strict=True)]
  values.append(('synth_text_span_corruption', 9.0))
  results = [
    result(task=task, metric='neg_log_perplexity', value=-value, unit='token')
    for task, value in values
  ]
  one = run('a', *results)
  mean = 'Log ppl, mean of 4 tasks'
  table = tables.make([one])
  keys = keys_of(table)
  pretraining = 'Log ppl text_span_corruption'
  assert keys == [pretraining, mean]
  means = table.numbers['mean'].loc['a'].dropna().to_dict()
  assert means == {pretraining: 9.0, mean: 3.0}
  assert any('--layout=all' in note for note in views.notes(table))
  keys = keys_of(tables.make([one], 'all'))
  assert keys == [*(f'Log ppl task_{i}' for i in range(4)), pretraining]
  few = tables.make([run('a', *results[:3])])
  assert len(keys_of(few)) == 3
