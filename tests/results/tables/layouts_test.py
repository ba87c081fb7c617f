"""Layouts: which columns a table has."""

from tests.results import made_runs
from tests.results.tables.made import GLUE, cells, texts, write


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


def test_an_unknown_task_has_a_column_of_its_own(tmp_path):
  made_runs.evaluated(tmp_path / 'a', 'mine', 100, {'bleu': 2.0})
  assert cells(texts(tmp_path / 'a'))['a']['mine/bleu'] == '2.0'


def test_speed_over_t5(tmp_path):
  made_runs.trained(tmp_path / 'v', 'vanilla')
  made_runs.trained(tmp_path / 'r', 'random')
  made_runs.events(tmp_path / 'r', (80, {'global_step/sec': 100.0}))
  shown = cells(texts(tmp_path / 'v', tmp_path / 'r', layout='speed'))
  assert shown['T5 (V)']['x T5'] == '1.00'
  assert shown['Syn (R)']['x T5'] == '1.25'  # the median of 2, 4, 6, 100
