"""Tables: which number stands where, and what is said of it."""

import json
import math
import statistics

import pandas as pd
import pytest
from t5.evaluation import eval_utils

import synth_mtf.progress  # noqa: F401  registers a name with gin
from synth_mtf.analysis import paper_scores, records, runs
from synth_mtf.analysis.tables import (
  checkpoints,
  data,
  grid,
  layouts,
  table,
)
from synth_mtf.errors import UserError
from tests.analysis import made_runs

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
COLA = 'synth_glue_cola_v002'
LAST = checkpoints.Last()
RECORDED = records.Run(versions={}, gin='')


def write(folder, scores, step=100, prefix='synth_'):
  for task, values in scores.items():
    made_runs.evaluated(folder, f'{prefix}{task}', step, values)


def cola(folder, value, step=100):
  made_runs.evaluated(folder, COLA, step, {'matthews_corrcoef': value})


def made(*folders, layout=None, choice=LAST):
  found = runs.read_all(list(map(str, folders)))
  if layout:
    return table.make(found, layouts.LAYOUTS[layout](found), choice)
  return table.make(found, layouts.overview(found), choice)


def texts(*folders, errors=False, paper=False, **kwargs):
  return grid.grid(made(*folders, **kwargs), errors, paper)


def cells(shown):
  """The text of each cell, by label and header."""
  return {
    row.label: {
      header: '/'.join(piece.text for piece in cell)
      for header, cell in zip(shown.headers, row.cells)
    }
    for row in shown.rows
  }


@pytest.mark.parametrize('prefix', ['', 'synth_'])
def test_averages_are_t5s(tmp_path, prefix):
  run = tmp_path / 'a'
  write(run, {**GLUE, **SUPER_GLUE}, prefix=prefix)
  expected = eval_utils.compute_avg_glue(
    pd.DataFrame(
      [
        {
          eval_utils.METRIC_NAMES[f'{task}/{metric}'].name: value
          for task, metrics in {**GLUE, **SUPER_GLUE}.items()
          for metric, value in metrics.items()
        }
      ]
    )
  )
  numbers = made(run).models[0].cells
  for key in ('GLUE', 'SuperGLUE'):
    assert numbers[key][0].mean == pytest.approx(
      expected[f'Average {key} Score'][0]
    )


def test_a_column_per_task_with_both_metrics_and_the_average(tmp_path):
  write(tmp_path / 'a', GLUE)
  shown = texts(tmp_path / 'a')
  assert shown.headers == [
    'GLUE', 'CoLA', 'SST', 'MRPC', 'STSB', 'QQP', 'MNLI', 'QNLI', 'RTE',
    'Steps/s', 'Params',
  ]  # fmt: skip
  row = cells(shown)['a']
  assert row['MRPC'] == '30.0/50.0'
  assert row['MNLI'] == '70.0/90.0'
  assert row['GLUE'] == f'{(10 + 20 + 40 + 60 + 60 + 80 + 90 + 100) / 8:.1f}'
  assert row['Params'] == '-'
  assert any('MRPC F1/accuracy' in note for note in shown.notes)


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


def test_an_unknown_task_has_a_column_of_its_own(tmp_path):
  made_runs.evaluated(tmp_path / 'a', 'mine', 100, {'bleu': 2.0})
  assert cells(texts(tmp_path / 'a'))['a']['mine/bleu'] == '2.0'


def seeds(folder, values, *bindings):
  """Runs of one model, each with a seed and a score."""
  for seed, value in enumerate(values):
    run = folder / f'run{seed}'
    setting = f'synth_mtf.train_with_progress.seed = {seed}'
    made_runs.trained(run, bindings=[setting, *bindings])
    if value is not None:
      cola(run, value)
  return [folder / f'run{seed}' for seed in range(len(values))]


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


def test_what_differs_by_more_than_a_seed_is_another_model(tmp_path):
  small = seeds(tmp_path / 'small', [1.0, 3.0], 'd_ff = 8')
  large = seeds(tmp_path / 'large', [5.0], 'd_ff = 16')
  shown = cells(texts(*small, *large))
  assert {label: row['CoLA'] for label, row in shown.items()} == {
    'Syn (R), small': '2.0±1.4',
    'Syn (R), large/run0': '5.0',
  }


@pytest.mark.parametrize(
  ('starts', 'models'),
  [
    (['a/seed_0/model.ckpt-9', 'a/seed_1/model.ckpt-9'], 1),
    (['a_s0/model.ckpt-9', 'a_s1/model.ckpt-9'], 1),
    (['a/seed_0/model.ckpt-9', 'a/seed_1/model.ckpt-8'], 2),
    (['lr0/model.ckpt-9', 'lr1/model.ckpt-9'], 2),
  ],
)
def test_seeds_may_start_from_seeds(tmp_path, starts, models):
  folders = []
  for number, start in enumerate(starts):
    binding = f"utils.run.init_checkpoint = '/runs/{start}'"
    made_runs.trained(tmp_path / str(number), bindings=[binding])
    folders.append(tmp_path / str(number))
  assert len(made(*folders).models) == models


def three_checkpoints(folder):
  """CoLA is best at 200, MRPC, by the mean of its metrics, at 100."""
  for step, score in ((100, 1.0), (200, 5.0), (300, 2.0)):
    cola(folder, score, step)
  for step, scores in ((100, (80.0, 70.0)), (200, (90.0, 50.0))):
    pair = dict(zip(('f1', 'accuracy'), scores))
    made_runs.evaluated(folder, 'synth_glue_mrpc_v002', step, pair)


@pytest.mark.parametrize(
  ('word', 'expected'),
  [
    ('last', ('2.0', '-/-')),
    ('best', ('5.0', '80.0/70.0')),
    ('200', ('5.0', '90.0/50.0')),
  ],
)
def test_checkpoints(tmp_path, word, expected):
  three_checkpoints(tmp_path / 'a')
  shown = texts(tmp_path / 'a', choice=checkpoints.choice(word))
  row = cells(shown)['a']
  assert (row['CoLA'], row['MRPC']) == expected
  caption = {'last': 'last checkpoint', 'best': 'best', '200': 'at step 200'}
  assert caption[word] in shown.caption


def test_the_best_log_perplexity_is_the_lowest(tmp_path):
  for step, value in ((100, -3.0), (200, -2.0), (300, -4.0)):
    measures = {'neg_log_perplexity': value, 'num_eval_tokens': 70}
    made_runs.measured(tmp_path / 'a', 'synth_lm1b', step, measures)
  row = cells(texts(tmp_path / 'a', choice=checkpoints.Best()))['a']
  assert row['Log ppl'] == '2.000'
  row = cells(texts(tmp_path / 'a', choice=checkpoints.Best(), layout='lm'))[
    'a'
  ]
  assert row['LM1B'] == '7.39'


def test_a_run_that_went_on_is_told(tmp_path):
  made_runs.trained(tmp_path / 'a', step=1300)
  cola(tmp_path / 'a', 1.0)
  note = f'{tmp_path}/a is at step 1,300, which has not been evaluated.'
  assert note in texts(tmp_path / 'a').notes
  cola(tmp_path / 'a', 1.0, step=1300)
  assert note not in texts(tmp_path / 'a').notes


def test_what_is_no_checkpoint(tmp_path):
  cola(tmp_path / 'a', 1.0)
  with pytest.raises(
    UserError, match='a has not been evaluated .* one of 100,'
  ):
    made(tmp_path / 'a', choice=checkpoints.choice('70'))
  for word in ('first', '-1', '1.5', ''):
    with pytest.raises(UserError, match='expected best, last, or a step'):
      checkpoints.choice(word)


def test_a_layout_of_which_there_is_nothing(tmp_path):
  cola(tmp_path / 'a', 1.0)
  with pytest.raises(UserError, match=f'Evaluated were: {COLA}'):
    made(tmp_path / 'a', layout='translation')
  made_runs.events(tmp_path / 'b', (1, {'loss': 5.0}))
  with pytest.raises(UserError, match='None of them has been evaluated'):
    made(tmp_path / 'b', layout='glue')


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


@pytest.mark.parametrize('layout', ['glue', 'superglue'])
def test_the_papers_averages_follow_from_its_cells(layout):
  """To the rounding of the cells, and of the average, each half a digit."""
  average, *columns = layouts.LAYOUTS[layout]([]).columns
  models = {model for key, model in paper_scores.SCORES if key == average.key}
  assert len(models) == 6
  for model in models:
    means = [
      statistics.fmean(paper_scores.SCORES[column.key, model])
      for column in columns
    ]
    (told,) = paper_scores.SCORES[average.key, model]
    assert statistics.fmean(means) == pytest.approx(told, abs=0.1)


def test_the_papers_scores_have_columns():
  keys = {
    column.key: len(column.measures)
    for make in layouts.LAYOUTS.values()
    for column in make([]).columns
  }
  keys['x T5'] = 1
  for (key, _), figures in paper_scores.SCORES.items():
    assert len(figures) == keys[key]


def test_speed_over_t5(tmp_path):
  made_runs.trained(tmp_path / 'v', 'vanilla')
  made_runs.trained(tmp_path / 'r', 'random')
  made_runs.events(tmp_path / 'r', (80, {'global_step/sec': 100.0}))
  shown = cells(texts(tmp_path / 'v', tmp_path / 'r', layout='speed'))
  assert shown['T5 (V)']['x T5'] == '1.00'
  assert shown['Syn (R)']['x T5'] == '1.25'  # the median of 2, 4, 6, 100


def test_csv_has_the_numbers_in_full(tmp_path):
  one, two = seeds(tmp_path, [1.0, 2.0])
  pair = {'f1': 1 / 3, 'accuracy': 2.0}
  made_runs.evaluated(one, 'glue_mrpc_v002', 100, pair)
  made_runs.evaluated(two, 'glue_mrpc_v002', 100, {'f1': 1 / 3})
  header, line = data.comma_separated(made(one, two)).splitlines()
  fields = dict(zip(header.split(','), line.split(',')))
  assert fields['model'] == 'Syn (R)'
  assert float(fields['CoLA']) == 1.5
  assert float(fields['CoLA sd']) == pytest.approx(0.5**0.5)
  assert float(fields['MRPC F1']) == pytest.approx(1 / 3, abs=1e-7)
  assert fields['MRPC accuracy'] == ''


def test_json_says_where_each_number_comes_from(tmp_path):
  one, two = seeds(tmp_path, [1.0, None])
  written = json.loads(data.as_json(made(one, two), ['a note'], paper=True))
  (model,) = written['models']
  assert [run['seed'] for run in model['runs']] == [0, 1]
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


def test_what_is_apart_by_more_than_its_standard_errors(tmp_path):
  # 64 answers: 60 and 34 right are apart, 60 and 52 are not.
  for name, qnli, rte in (('a', 60, 60), ('b', 34, 52)):
    (tmp_path / name / 'validation_eval').mkdir(parents=True)
    for task, right in (('glue_qnli_v002', qnli), ('glue_rte_v002', rte)):
      p = right / 64
      result = records.Result(
        task=f'synth_{task}',
        split='validation',
        metric='accuracy',
        value=100 * p,
        n=64,
        unit='example',
        standard_error=100 * math.sqrt(p * (1 - p) / 63),
        step=100,
      )
      records.add_results(
        str(tmp_path / name / 'validation_eval'), [result], RECORDED
      )
  notes = texts(tmp_path / 'a', tmp_path / 'b').notes
  (note,) = [note for note in notes if 'apart' in note]
  assert note.endswith(' in QNLI (a 93.8, b 53.1, n = 64).')
  assert not any('apart' in note for note in texts(tmp_path / 'a').notes)
