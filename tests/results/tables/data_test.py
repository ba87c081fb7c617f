"""The numbers of a table as CSV and JSON."""

import json

import pytest

from synth_mtf.results.tables import data
from tests.results import made_runs
from tests.results.made_runs import COLA
from tests.results.tables.made import seeds, table_of


def test_csv_has_the_numbers_in_full(tmp_path):
  one, two = seeds(tmp_path, [1.0, 2.0])
  pair = {'f1': 1 / 3, 'accuracy': 2.0}
  made_runs.evaluated(one, 'glue_mrpc_v002', 100, pair)
  made_runs.evaluated(two, 'glue_mrpc_v002', 100, {'f1': 1 / 3})
  header, line = data.comma_separated(table_of(one, two)).splitlines()
  fields = dict(zip(header.split(','), line.split(',')))
  assert fields['model'] == 'Syn (R)'
  assert float(fields['CoLA']) == 1.5
  assert float(fields['CoLA sd']) == pytest.approx(0.5**0.5)
  assert float(fields['MRPC F1']) == pytest.approx(1 / 3, abs=1e-7)
  assert fields['MRPC accuracy'] == ''


def test_json_says_where_each_number_comes_from(tmp_path):
  one, two = seeds(tmp_path, [1.0, None])
  written = json.loads(data.as_json(table_of(one, two), ['a note'], paper=True))
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
