"""The figures of the paper: beside counted ones, and beside each other."""

import statistics
import types
from typing import Any

import pytest

from synth_mtf.results import layouts, paper


def test_a_table_beside_the_papers():
  table = paper.Table(
    'Table 9',
    (),
    (
      paper.System('One', '', 'base', 'vanilla', 100),
      paper.System('Two', '', 'base', 'random', 101, 1.25),
      paper.System('Other', '1.0'),
      paper.System('Three', '', 'base', 'dense'),
    ),
  )
  costs: Any = [
    types.SimpleNamespace(trained=trained, flops=flops)
    for trained, flops in ((100e6, 400), (99.04e6, 600), (1e6, 200))
  ]
  title, head, *rows = paper.text(table, costs).splitlines()
  assert title == 'Table 9'
  assert head.split() == [
    *('trained', 'paper', 'difference', 'products', 'paper'),
  ]
  assert [row.split() for row in rows] == [
    ['One', '100.0', 'M', '100', 'M', '+0.0', 'M', '1.00', '-'],
    ['Two', '99.0', 'M', '101', 'M', '-2.0', 'M', '1.50', '1.25'],
    ['Three', '1.0', 'M', '-', '-', '0.50', '-'],
  ]
  assert len({len(row) for row in [head, *rows]}) == 1, 'it is aligned'


@pytest.mark.parametrize('layout', ['glue', 'superglue'])
def test_the_papers_averages_follow_from_its_cells(layout):
  """To the rounding of the cells, and of the average, each half a digit."""
  average, *columns = layouts.LAYOUTS[layout].columns
  models = {model for key, model in paper.SCORES if key == average.key}
  assert len(models) == 6
  for model in models:
    means = [
      statistics.fmean(paper.SCORES[column.key, model]) for column in columns
    ]
    (told,) = paper.SCORES[average.key, model]
    assert statistics.fmean(means) == pytest.approx(told, abs=0.1)


def test_the_papers_scores_have_columns():
  keys = {
    column.key: len(column.measures)
    for layout in layouts.LAYOUTS.values()
    for column in layout.columns
  }
  for (key, _), figures in paper.SCORES.items():
    assert len(figures) == keys[key]
