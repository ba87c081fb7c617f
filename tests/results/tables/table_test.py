"""A table: which runs are of one row, and what cannot be shown."""

import pytest

from synth_mtf.errors import UserError
from synth_mtf.results.tables import checkpoints
from synth_mtf.results.tables.columns import Found
from synth_mtf.results.tables.table import Numbers
from tests.results import made_runs
from tests.results.made_runs import COLA
from tests.results.tables.made import cells, cola, seeds, table_of, texts


def test_what_differs_by_more_than_a_seed_is_another_model(tmp_path):
  small = seeds(tmp_path / 'small', [1.0, 3.0], 'd_ff = 8')
  large = seeds(tmp_path / 'large', [5.0], 'd_ff = 16')
  shown = cells(texts(*small, *large))
  assert {label: row['CoLA'] for label, row in shown.items()} == {
    'Syn (R), small': '2.0±1.4',
    'Syn (R), large/run0': '5.0',
  }


def test_a_step_that_was_not_evaluated(tmp_path):
  cola(tmp_path / 'a', 1.0)
  with pytest.raises(
    UserError, match='a has not been evaluated .* one of 100,'
  ):
    table_of(tmp_path / 'a', choice=checkpoints.choice('70'))


def test_a_layout_of_which_there_is_nothing(tmp_path):
  cola(tmp_path / 'a', 1.0)
  with pytest.raises(UserError, match=f'Evaluated were: {COLA}'):
    table_of(tmp_path / 'a', layout='translation')
  made_runs.events(tmp_path / 'b', (1, {'loss': 5.0}))
  with pytest.raises(UserError, match='None of them has been evaluated'):
    table_of(tmp_path / 'b', layout='glue')


def test_numbers_are_those_of_all_runs_or_there_are_none():
  def found(value, error, n):
    result = made_runs.result(value=value, n=n, standard_error=error)
    return Found(value, result, error)

  known = found(2.0, 3.0, 50)
  both = Numbers([known, found(6.0, 4.0, 50)])
  assert both.mean == 4.0
  assert both.deviation == pytest.approx(8**0.5)
  assert both.standard_error == pytest.approx(12.5**0.5)
  assert both.n == 50
  holes = [None, found(None, None, 50), found(6.0, None, 49)]
  assert [
    (one.mean, one.deviation, one.standard_error, one.n)
    for one in (Numbers([known, known, hole]) for hole in holes)
  ] == [
    (None, None, None, None),
    (None, None, None, 50),
    (pytest.approx(10 / 3), pytest.approx((16 / 3) ** 0.5), None, None),
  ]
  assert Numbers([known]).deviation is None
