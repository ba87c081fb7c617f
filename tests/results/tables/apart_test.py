"""Which scores differ by more than the number of examples explains."""

import math

import pytest

from synth_mtf.results import records
from synth_mtf.results.tables import apart
from synth_mtf.results.tables.columns import Found, Measure, TaskColumn
from synth_mtf.results.tables.table import Model, Numbers, Table
from tests.results import made_runs
from tests.results.tables.made import texts

RECORDED = records.Run(versions={}, gin='')


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


def told(measures, models):
  """What is said of a column of which models have (value, error, n)."""
  rows = []
  for label, scores in models.items():
    cells = []
    for value, error, n in scores:
      result = made_runs.result(value=value, standard_error=error, n=n)
      cells.append(Numbers([Found(value, result, error)]))
    rows.append(Model(label, label, [label], [None], {'X': cells}, {}))
  column = TaskColumn('X', 'X', measures)
  return list(apart.apart(Table('', '', [column], rows)))


@pytest.mark.parametrize(
  ('better', 'expected'),
  [(64.5, []), (65.0, []), (65.5, ['X (b 65.5, a 50.0)'])],
)
def test_it_is_three_standard_errors_of_the_difference(better, expected):
  """That of errors of 3 and 4 is 5."""
  models = {'a': [(50.0, 3.0, None)], 'b': [(better, 4.0, None)]}
  assert told([Measure('accuracy')], models) == expected


@pytest.mark.parametrize(
  ('f1', 'accuracy', 'expected'),
  [
    (51.0, 90.0, ['X (b 90.0, a 60.0)']),
    (80.0, 61.0, ['X (b 80.0, a 50.0)']),
    (80.0, 90.0, ['X (b 80.0, a 50.0)']),
    (51.0, 61.0, []),
  ],
)
def test_of_two_metrics_the_first_that_tells_them_apart(f1, accuracy, expected):
  measures = [Measure('F1'), Measure('accuracy')]
  a, b = (
    [(x, 1.0, None), (y, 1.0, None)] for x, y in ((50, 60), (f1, accuracy))
  )
  assert told(measures, {'a': a, 'b': b}) == expected


def test_the_best_log_perplexity_is_the_lowest():
  measure = Measure('log perplexity', (), '{:.3f}'.format, False)
  models = {
    'a': [(3.0, 0.01, 70_000)],
    'b': [(2.0, 0.01, 70_000)],
    'c': [(2.5, 0.01, 70_000)],
  }
  assert told([measure], models) == ['X (b 2.000, a 3.000, n = 70,000)']


@pytest.mark.parametrize(
  'scores',
  [
    pytest.param([(10.0, None, 64), (90.0, None, 64)], id='no errors'),
    pytest.param([(10.0, 1.0, 64), (90.0, None, 64)], id='one error'),
    pytest.param([(10.0, 1.0, 64), (None, None, 64)], id='one score'),
    pytest.param([(10.0, 0.0, 64), (10.0, 0.0, 64)], id='the same'),
    pytest.param([(10.0, 1.0, 64)], id='one model'),
  ],
)
def test_where_nothing_can_be_told(scores):
  models = {str(number): [score] for number, score in enumerate(scores)}
  assert told([Measure('accuracy')], models) == []


def test_where_no_number_is_better_nothing_is_told():
  models = {'a': [(10.0, 1.0, 64)], 'b': [(90.0, 1.0, 64)]}
  assert told([Measure('length', higher_is_better=None)], models) == []
