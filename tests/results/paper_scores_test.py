"""The paper's scores: they agree with each other, and have their columns."""

import statistics

import pytest

from synth_mtf.results import paper_scores
from synth_mtf.results.tables import layouts


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
