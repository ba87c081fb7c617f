"""What an evaluation leaves in metrics.json and predictions.jsonl."""

import json

import gin
import numpy as np
import pytest
from mesh_tensorflow.transformer import utils

import synth_mtf
from synth_mtf.host import evaluation
from synth_mtf.results import records
from synth_mtf.results.standard_error import standard_errors
from synth_mtf.run.recording import Recorder

TARGETS = [0, 1, 1, 0]
READ_AS = [0, 1, 0, 0]


def accuracy(targets, predictions):
  return {'accuracy': 100 * np.mean(np.equal(targets, predictions))}


@pytest.fixture
def place(tmp_path):
  return {
    'folder': str(tmp_path),
    'task': 'cola',
    'split': 'validation',
    'step': 100,
  }


@pytest.fixture
def evaluated(place):
  return evaluation.Evaluation(
    examples=[
      evaluation.Example(
        {
          'inputs_pretokenized': f'sentence {i}'.encode(),
          'targets_pretokenized': 'yes',
        },
        f'written {i}',
        read_as,
      )
      for i, read_as in enumerate(READ_AS)
    ],
    targets=TARGETS,
    metrics=[(accuracy, accuracy(TARGETS, READ_AS))],
    **place,
  )


def test_metrics_of_examples(evaluated, tmp_path):
  Recorder().evaluated(evaluated)
  ((result, run),) = records.read(str(tmp_path))
  errors = standard_errors(accuracy, TARGETS, READ_AS)
  assert result == records.Result(
    task='cola',
    split='validation',
    metric='accuracy',
    value=75.0,
    n=4,
    unit='example',
    standard_error=errors['accuracy'],
    step=100,
  )
  assert run['versions']['synth-mtf'] == synth_mtf.__version__
  assert {'python', 'tensorflow', 't5'} <= set(run['versions'])


def test_predictions(evaluated, tmp_path):
  Recorder().evaluated(evaluated)
  lines = (tmp_path / records.PREDICTIONS).read_text().splitlines()
  found = list(map(json.loads, lines))
  assert len(found) == 4
  assert found[2] == {
    'task': 'cola',
    'split': 'validation',
    'step': 100,
    'example': 2,
    'input': 'sentence 2',
    'target': 'yes',
    'prediction': 'written 2',
    'read_as': 0,
    'target_read_as': 1,
  }


def test_predictions_may_be_left_out(evaluated, tmp_path):
  gin.bind_parameter('utils.run.output_eval_examples', False)
  assert gin.get_bindings(utils.run) == {'output_eval_examples': False}
  Recorder().evaluated(evaluated)
  assert [path.name for path in tmp_path.iterdir()] == [records.METRICS]


def test_what_is_measured_token_by_token(place, tmp_path):
  Recorder().measured(
    evaluation.Perplexity(
      measures={
        'neg_log_perplexity': -1.5,
        'token_accuracy': 0.25,
        'num_eval_tokens': 39.9999,
        'loss': 7.0,
      },
      **place,
    )
  )
  found = [result for result, _ in records.read(str(tmp_path))]
  assert [(r.metric, r.value, r.n, r.unit) for r in found] == [
    ('neg_log_perplexity', -1.5, 40, 'token'),
    ('token_accuracy', 0.25, 40, 'token'),
  ]
  assert all(result.standard_error is None for result in found)


def test_who_asked_is_told(evaluated):
  decoded: list[tuple[int, int]] = []
  results: list[records.Result] = []
  recorder = Recorder()
  recorder.decoded(100, 1)  # nobody has asked
  recorder.tell(lambda *found: decoded.append(found), results.append)
  recorder.decoded(100, 2)
  recorder.evaluated(evaluated)
  assert decoded == [(100, 2)]
  assert [result.metric for result in results] == ['accuracy']
