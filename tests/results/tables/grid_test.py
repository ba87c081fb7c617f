"""A table as texts: what a cell says, which is best, what is noted."""

import statistics

from synth_mtf.results import runs
from tests.results import made_runs
from tests.results.made_runs import COLA
from tests.results.tables.made import (
  GLUE,
  cells,
  cola,
  seeds,
  texts,
  write,
)


def test_what_is_missing_is_a_dash_and_no_zero(tmp_path):
  write(tmp_path / 'whole', GLUE)
  hole = {task: GLUE[task] for task in GLUE if 'qnli' not in task}
  hole['glue_qqp_v002'] = {'f1': 60.0}
  write(tmp_path / 'hole', hole)
  row = cells(texts(tmp_path / 'whole', tmp_path / 'hole'))['hole']
  assert (row['QNLI'], row['QQP'], row['GLUE']) == ('-', '60.0/-', '-')
  assert row['RTE'] == '100.0'


def test_what_is_not_defined_is_a_dash_and_counts_as_0(tmp_path):
  nan = float('nan')
  stsb = {'pearson_corrcoef': nan, 'spearman_corrcoef': 50.0}
  write(tmp_path / 'a', {**GLUE, 'glue_stsb_v002': stsb})
  shown = texts(tmp_path / 'a', layout='glue')
  row = cells(shown)['a']
  assert row['STSB'] == '-/50.0'
  assert row['GLUE'] == f'{(10 + 20 + 40 + 25 + 60 + 80 + 90 + 100) / 8:.1f}'
  assert 'a: not defined, of some run: STSB.' in shown.notes


def test_several_seeds_are_mean_and_standard_deviation(tmp_path):
  values = [10.0, 20.0, 60.0]
  shown = texts(*seeds(tmp_path, values))
  row = cells(shown)['Syn (R)']
  assert row['CoLA'] == f'30.0±{statistics.stdev(values):.1f}'
  assert row['Params'] == '0.00M'
  assert (
    'Syn (R): mean±standard deviation over 3 runs (seeds 0, 1, 2).'
    in shown.notes
  )


def test_a_hole_in_one_seed_is_told(tmp_path):
  shown = texts(*seeds(tmp_path, [10.0, None, 60.0]))
  assert cells(shown)['Syn (R)']['CoLA'] == '-'
  assert 'Syn (R): missing, of some run: CoLA.' in shown.notes


def test_a_run_that_went_on_is_told(tmp_path):
  made_runs.trained(tmp_path / 'a', step=1300)
  cola(tmp_path / 'a', 1.0)
  note = f'{tmp_path}/a is at step 1,300, which has not been evaluated.'
  assert note in texts(tmp_path / 'a').notes
  cola(tmp_path / 'a', 1.0, step=1300)
  assert note not in texts(tmp_path / 'a').notes


def best(shown, header):
  column = list(shown.headers).index(header)
  return [
    [piece.text for piece in row.cells[column] if piece.best]
    for row in shown.rows
  ]


def test_the_best_of_each_number_is_marked(tmp_path):
  for name, scores in {'a': (1.0, 9.0), 'b': (2.0, 8.0)}.items():
    pair = dict(zip(('f1', 'accuracy'), scores))
    made_runs.evaluated(tmp_path / name, 'glue_mrpc_v002', 100, pair)
    cola(tmp_path / name, 3.01 if name == 'a' else 3.02)
    made_runs.measured(
      tmp_path / name,
      'lm1b',
      100,
      {'neg_log_perplexity': -scores[0], 'num_eval_tokens': 7},
    )
  shown = texts(tmp_path / 'a', tmp_path / 'b')
  assert best(shown, 'MRPC')[:2] == [['9.0'], ['2.0']]
  assert best(shown, 'Log ppl')[:2] == [['1.000'], []]
  # Both are shown as 3.0: none is better.
  assert best(shown, 'CoLA')[:2] == [[], []]
  assert best(texts(tmp_path / 'a'), 'MRPC')[0] == []


def test_errors_and_counts(tmp_path):
  targets, predictions = [0, 1] * 20, [0, 0] * 20
  for task in ('glue_sst2_v002', 'glue_mnli_matched_v002'):
    made_runs.evaluated(
      tmp_path / 'a', task, 100, {'accuracy': 50.0}, targets, predictions
    )
  made_runs.measured(
    tmp_path / 'a',
    'lm1b',
    100,
    {'neg_log_perplexity': -1, 'num_eval_tokens': 7},
  )
  shown = cells(texts(tmp_path / 'a', errors=True))
  (found,) = (
    one
    for one in runs.read(str(tmp_path / 'a'))[0].results
    if one.task == 'glue_sst2_v002'
  )
  assert shown['a']['SST'] == f'50.0 ({found.standard_error:.1f})'
  assert shown['n']['SST'] == '40'
  assert shown['n']['Log ppl'] == '7 tokens'
  assert cells(texts(tmp_path / 'a'))['n']['Log ppl'] == ''


def test_the_training_split_is_warned_of(tmp_path):
  scores = {'matthews_corrcoef': 1.0}
  made_runs.evaluated(tmp_path / 'a', COLA, 1, scores, split='train')
  assert 'of the training split' in ' '.join(texts(tmp_path / 'a').notes)
  cola(tmp_path / 'a', 7.0)
  shown = texts(tmp_path / 'a')
  assert cells(shown)['a']['CoLA'] == '7.0'
  assert 'training split' not in ' '.join(shown.notes)


def test_the_paper_and_the_difference(tmp_path):
  made_runs.trained(tmp_path / 'a', 'random')
  write(tmp_path / 'a', {**GLUE, 'glue_cola_v002': {'matthews_corrcoef': 40.0}})
  cola(tmp_path / 'b', 1.0)
  shown = cells(
    texts(tmp_path / 'a', tmp_path / 'b', layout='glue', paper=True)
  )
  assert list(shown) == ['Syn (R)', '  the paper', '  difference', 'b']
  assert shown['  the paper']['CoLA'] == '41.2'
  assert shown['  difference']['CoLA'] == '-1.2'
  assert shown['  difference']['MRPC'] == '-55.9/-29.4'
