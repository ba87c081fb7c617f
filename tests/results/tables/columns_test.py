"""Columns: which result of a run is its number, and averages."""

import math

import pandas as pd
import pytest
from t5.evaluation import eval_utils

from synth_mtf.results.tables import checkpoints
from tests.results import made_runs
from tests.results.made_runs import COLA
from tests.results.tables.made import GLUE, cells, cola, table_of, texts, write

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
  numbers = table_of(run).models[0].cells
  for key in ('GLUE', 'SuperGLUE'):
    assert numbers[key][0].mean == pytest.approx(
      expected[f'Average {key} Score'][0]
    )


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


def test_the_validation_split_comes_first(tmp_path):
  test = {'matthews_corrcoef': 9.0}
  made_runs.evaluated(tmp_path / 'a', COLA, 200, test, split='test')
  assert cells(texts(tmp_path / 'a'))['a']['CoLA'] == '9.0'
  cola(tmp_path / 'a', 1.0, step=100)
  assert cells(texts(tmp_path / 'a'))['a']['CoLA'] == '-'
  cola(tmp_path / 'a', 2.0, step=200)
  assert cells(texts(tmp_path / 'a'))['a']['CoLA'] == '2.0'


def test_a_share_in_percent_has_its_error_in_percent(tmp_path):
  measures = {'sequence_accuracy': 0.25, 'num_eval_tokens': 400}
  one_token = {'max_targets_length': 1}
  made_runs.measured(
    tmp_path / 'a', 'synth_ag_news_class', 100, {**measures, **one_token}
  )
  made = table_of(tmp_path / 'a', layout='classification')
  (accuracy,) = made.models[0].cells['AG News']
  assert accuracy.mean == 25.0
  assert accuracy.standard_error == pytest.approx(math.sqrt(25 * 75 / 400))
