"""Standard errors by the jackknife."""

import numpy as np
import pytest

from synth_mtf.results.standard_error import GROUPS, standard_errors


def mean(targets, predictions):
  return {'mean': float(np.mean(predictions))}


def test_with_one_example_a_group_it_is_the_formula():
  values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
  error = standard_errors(mean, values, values)['mean']
  assert error == pytest.approx(np.std(values, ddof=1) / np.sqrt(len(values)))


def test_neighbours_stay_together():
  """Twice the same example says no more than one: the error does not shrink."""
  values = [float(x) for x in np.random.default_rng(1).random(GROUPS)]
  doubled = [value for value in values for _ in range(2)]
  once, twice = (
    standard_errors(mean, one, one)['mean'] for one in (values, doubled)
  )
  assert once == pytest.approx(twice)


def test_where_there_is_none():
  assert standard_errors(mean, [1], [1]) == {}
  nowhere = lambda targets, predictions: {'r': float('nan')}  # noqa: E731
  assert standard_errors(nowhere, [1, 2], [1, 2]) == {'r': None}

  def strict(targets, predictions):
    raise ValueError('all questions are expected')

  assert standard_errors(strict, [1, 2], [1, 2]) == {}
