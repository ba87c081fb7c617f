"""The step at which a number is best."""

import pytest

from synth_mtf.errors import UserError
from synth_mtf.results.choosing import best_step
from tests.results import made_runs


def run_of(metric, *values):
  results = [
    made_runs.result(task='own_task', metric=metric, value=value, step=step)
    for step, value in enumerate(values, 1)
  ]
  return made_runs.fake('run', *results)


def test_lower_distances_are_better():
  run = run_of('mean_edit', 3.0, 1.0, 2.0)
  assert best_step(run, 'own_task/mean_edit') == 2


def test_numbers_of_which_none_is_better():
  run = run_of('novel_score', 3.0, 1.0, 2.0)
  with pytest.raises(UserError, match='no evaluated checkpoint has a number'):
    best_step(run, 'own_task/novel_score')
