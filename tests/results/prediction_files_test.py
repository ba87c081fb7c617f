"""What T5's text files tell of its scores: how many examples, and errors."""

import statistics

import numpy as np
import pytest
import seqio

import synth_mtf.tasks  # noqa: F401  registers what is evaluated
from synth_mtf.results.standard_error import standard_errors
from tests.results import made_runs
from tests.results.made_runs import COLA, only, result

TARGETS = [1, 0, 1, 1, 0, 1] * 10
PREDICTIONS = [1, 0, 0, 1, 1, 1] * 10
(COLA_METRIC,) = seqio.TaskRegistry.get(COLA).metric_fns


@pytest.mark.parametrize('task', [COLA, 'glue_cola_v002'])
def test_n_and_errors_come_from_the_text_files(tmp_path, task):
  scores = COLA_METRIC(TARGETS, PREDICTIONS)
  made_runs.evaluated(tmp_path, task, 100, scores, TARGETS, PREDICTIONS)
  (found,) = only(tmp_path).results
  errors = standard_errors(COLA_METRIC, TARGETS, PREDICTIONS)
  assert found.n == 60
  assert found.value == pytest.approx(scores['matthews_corrcoef'])
  assert found.standard_error == errors['matthews_corrcoef']
  assert found.standard_error


def test_the_error_of_a_mean_is_the_usual_one(tmp_path):
  right = [t == p for t, p in zip(TARGETS, PREDICTIONS)]
  made_runs.evaluated(
    tmp_path,
    'synth_glue_sst2_v002',
    7,
    {'accuracy': 100 * statistics.fmean(right)},
    TARGETS,
    PREDICTIONS,
  )
  (found,) = only(tmp_path).results
  blocks = np.reshape(right, [20, 3]).mean(1)
  usual = 100 * statistics.stdev(blocks) / 20**0.5
  assert found.standard_error == pytest.approx(usual)


def test_answers_that_are_numbers_are_texts(tmp_path):
  task = 'synth_squad_v010_allanswers'
  (metric,) = seqio.TaskRegistry.get(task).metric_fns
  answers = [['1990', 'in 1990'], ['7']] * 20
  written = ['1990'] * 40
  scores = metric(answers, written)
  made_runs.evaluated(tmp_path, task, 100, scores, answers, written)
  errors = standard_errors(metric, answers, written)
  for found in only(tmp_path).results:
    assert found.standard_error == errors[found.metric]
    assert (found.value, found.n) == (50.0, 40)


def test_no_error_where_the_files_are_not_those_of_the_score(tmp_path):
  made_runs.evaluated(
    tmp_path, COLA, 100, {'matthews_corrcoef': 99.0}, TARGETS, PREDICTIONS
  )
  assert only(tmp_path).results == [result(value=99.0, n=60)]


def test_an_accuracy_has_an_error_whatever_the_task_is(tmp_path):
  files = TARGETS, PREDICTIONS
  made_runs.evaluated(tmp_path, 'mine', 100, {'accuracy': 20.0}, *files)
  (found,) = only(tmp_path).results
  assert found.standard_error == pytest.approx(100 * (0.2 * 0.8 / 60) ** 0.5)
