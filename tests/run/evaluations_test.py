"""What an evaluation writes beside T5's files, and shows."""

import contextlib
import datetime
import functools
import json
import os
import shlex
import sys
import types

import gin
import numpy as np
import pytest
import seqio
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils
from mesh_tensorflow.transformer.dataset import EvalDataset

import synth_mtf
import synth_mtf.recorded  # noqa: F401 (it records)
from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.results import records
from synth_mtf.results.standard_error import spread
from synth_mtf.run import current, evaluations, output

TARGETS, READ_AS = [0, 1, 1, 0], [0, 1, 0, 0]
STEPS = [100, 200]
SCORES = [('accuracy', 75.0), ('ones', 1.0)]


def accuracy(targets, predictions):
  return {'accuracy': 100 * np.mean(np.equal(targets, predictions))}


def ones(_targets, predictions):
  return tf.Summary(
    value=[tf.Summary.Value(tag='ones', simple_value=sum(predictions))]
  )


def read_number(text, example, is_target=False):
  assert text.startswith('target' if is_target else 'written')
  assert example['inputs_pretokenized'].startswith(b'sentence')
  return int(text.split()[-1])


def examples():
  return tf.data.Dataset.from_tensor_slices(
    {
      'inputs': [[1]] * 4,
      'targets': [[1]] * 4,
      'inputs_pretokenized': [f'sentence {i}' for i in range(4)],
      'targets_pretokenized': [f'target {target}' for target in TARGETS],
    }
  )


@pytest.fixture
def estimator(tmp_path, monkeypatch):
  """An estimator that the host would have made, whose model is not run."""

  def predict(_input_fn, checkpoint_path=None):
    assert checkpoint_path
    for number in READ_AS:
      yield {'inputs': b'', 'outputs': f'written {number}'.encode()}

  def evaluate(input_fn, **unused):
    return {
      'neg_log_perplexity': -1.5,
      'token_accuracy': 0.25,
      'num_eval_tokens': 39.9999,
      'loss': 7.0,
    }

  for step in STEPS:
    (tmp_path / f'model.ckpt-{step}.index').touch()
  made = types.SimpleNamespace(
    predict=predict,
    evaluate=evaluate,
    export_saved_model=lambda folder: f'{folder}/170000'.encode(),
    eval_dir=lambda name: str(tmp_path / f'eval_{name}'),
  )
  monkeypatch.setattr(utils.get_estimator, '_function', lambda: made)
  return utils.get_estimator()


def evaluate(
  estimator,
  model_dir,
  task='cola',
  folder=None,
  metrics=None,
  **settings,
):
  """Evaluates a task at two checkpoints as the host does."""
  utils.eval_model(
    estimator,
    None,
    {'inputs': 1, 'targets': 1},
    4,
    'validation',
    str(model_dir),
    lambda **unused: [
      EvalDataset(task, examples, read_number, metrics or [accuracy, ones])
    ],
    folder,
    STEPS,
    **settings,
  )


def test_metrics_and_predictions_of_examples(estimator, tmp_path):
  evaluate(estimator, tmp_path)
  folder = tmp_path / 'validation_eval'
  found = records.read(str(folder))
  assert [(one.step, one.metric, one.value) for one, _ in found] == [
    (step, *score) for step in STEPS for score in SCORES
  ]
  result, run = found[0]
  assert result == records.Result(
    task='cola',
    split='validation',
    metric='accuracy',
    value=75.0,
    n=4,
    unit='example',
    standard_error=spread(accuracy, TARGETS, READ_AS).errors['accuracy'],
    step=100,
  )
  assert run['versions']['synth-mtf'] == synth_mtf.__version__
  assert {'python', 'tensorflow', 't5'} <= set(run['versions'])
  assert datetime.datetime.fromisoformat(run['date']).utcoffset() is not None
  assert shlex.split(run['command']) == sys.argv
  assert run['machine'].endswith(f'CPU:0, {os.cpu_count()} cores')
  assert {origin['date'] for _, origin in found} == {run['date']}
  lines = (folder / records.PREDICTIONS).read_text().splitlines()
  predictions = list(map(json.loads, lines))
  assert len(predictions) == 8
  assert predictions[6] == {
    'task': 'cola',
    'split': 'validation',
    'step': 200,
    'example': 2,
    'input': 'sentence 2',
    'target': 'target 1',
    'prediction': 'written 0',
    'read_as': 0,
    'scores': {'accuracy': 0.0},
    'target_read_as': 1,
  }
  inputs = (folder / 'cola_inputs').read_text().splitlines()
  assert inputs == [f'sentence {number}' for number in range(4)]


@pytest.mark.parametrize(
  'returned, message',
  [
    (lambda: 1 / 0, 'ZeroDivisionError: division by zero'),
    (lambda: 3, 'AttributeError: .*Expected a dict of numbers'),
    (lambda: {'good': 'yes'}, "ValueError: .*'yes'"),
  ],
)
def test_a_metric_that_fails_is_named(estimator, tmp_path, returned, message):
  def mine(targets, predictions):
    return returned()

  with pytest.raises(UserError, match=f'metric mine of cola fails: {message}'):
    evaluate(estimator, tmp_path, metrics=[mine])


def test_generated_samples_are_recorded_as_such(estimator, tmp_path):
  samples = paths.samples_path()
  for folder, task, data in (
    (samples, 'synth_a', paths.GENERATED),
    (samples, 'b', ''),
    (str(tmp_path), 'synth_c', ''),
  ):
    gin.bind_parameter('synth_mtf.tasks.settings.data_dir', folder)
    evaluate(estimator, tmp_path, task, eval_dir_suffix=task)
    found = records.read(f'{tmp_path}/validation_eval_{task}')
    assert {result.data for result, _ in found} == {data}


def test_predictions_may_be_left_out(estimator, tmp_path):
  evaluate(estimator, tmp_path, output_eval_examples=False, eval_dir_suffix='x')
  folder = tmp_path / 'validation_eval_x'
  names = {path.name for path in folder.iterdir()}
  assert records.METRICS in names and records.PREDICTIONS not in names


def test_what_is_measured_token_by_token(estimator, tmp_path):
  gin.bind_parameter('utils.run.dataset_split', 'test')
  task = EvalDataset('lm', None, None, None)
  estimator.evaluate(
    input_fn=functools.partial(dict, eval_dataset=task),
    checkpoint_path=f'{tmp_path}/model.ckpt-100',
    name='lm_test',
    steps=1,
  )
  found = [result for result, _ in records.read(f'{tmp_path}/eval_lm_test')]
  assert [(r.metric, r.value, r.n, r.unit) for r in found] == [
    ('neg_log_perplexity', -1.5, 40, 'token'),
    ('token_accuracy', 0.25, 40, 'token'),
  ]
  assert {(r.task, r.split, r.step, r.standard_error) for r in found} == {
    ('lm', 'test', 100, None)
  }


def test_perplexity_of_a_language_model_is_per_word_too(estimator, tmp_path):
  """Two words and two ends of texts; eight letters and the ends."""
  gin.bind_parameter('utils.run.model_type', 'lm')
  gin.bind_parameter('utils.run.batch_size', 1)
  gin.bind_parameter('utils.run.sequence_length', {'targets': 8})
  texts = tf.data.Dataset.from_tensor_slices(
    {'targets_pretokenized': ['abcd', 'efgh', 'not counted']}
  )
  name = 'evaluations_test'
  seqio.TaskRegistry.add(
    name,
    source=seqio.FunctionDataSource(
      lambda split, shuffle_files: texts, ['validation']
    ),
    output_features={'targets': seqio.Feature(seqio.ByteVocabulary())},
  )
  estimator.evaluate(
    input_fn=functools.partial(
      dict, eval_dataset=EvalDataset(name, lambda: texts, None, None)
    ),
    checkpoint_path=f'{tmp_path}/model.ckpt-100',
    name='lm',
    steps=2,
  )
  seqio.TaskRegistry.remove(name)
  found = {r.metric: r for r, _ in records.read(f'{tmp_path}/eval_lm')}
  per_word = found['neg_log_perplexity_per_word']
  assert (per_word.n, per_word.unit) == (4, 'word')
  assert per_word.value == -1.5 * 10 / 4


def test_the_user_sees_progress_and_results(estimator, tmp_path, capfd):
  with (
    open(2, 'w', closefd=False) as stderr,  # here it is a file of pytest's
    contextlib.redirect_stderr(stderr),
    output.to_log(str(tmp_path / 'log')),
  ):
    evaluate(estimator, tmp_path)
  assert capfd.readouterr().err.splitlines()[:3] == [
    'decode, step 100  ...',
    '100  cola  accuracy 75 +- 25  n = 4',
    '100  cola  ones 1  n = 4',
  ]
  outcome = current.run().outcome
  assert outcome.result == '200  cola  ones 1  n = 4'
  assert f'Wrote 5 files in {tmp_path}/validation_eval' in outcome.written()
  evaluate(estimator, tmp_path)
  assert not capfd.readouterr().err, 'the stock command prints what it prints'


def test_results_in_a_bucket_are_not_locked(
  estimator, tmp_path, capfd, monkeypatch
):
  # ram:// cannot replace a file.
  for name in ('add_results', 'add_predictions'):
    monkeypatch.setattr(records, name, lambda *unused: None)
  folder = f'ram://{tmp_path}/results'

  def body():
    for name in (folder, f'{folder}_again'):
      evaluate(estimator, tmp_path, folder=name)
    evaluate(estimator, tmp_path)

  lines = shown_by(body, tmp_path / 'log', capfd)
  shown = [line for line in lines if 'a bucket has no locks' in line]
  assert len(shown) == 1 and shown[0].startswith(f'{folder}: '), lines


def shown_by(body, log, capfd):
  with (
    open(2, 'w', closefd=False) as stderr,  # here it is a file of pytest's
    contextlib.redirect_stderr(stderr),
    output.to_log(str(log)),
  ):
    body()
  return capfd.readouterr().err.splitlines()


def test_decoding_counts_to_its_total(estimator, tmp_path, capfd, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_PROGRESS_SECONDS', '0')
  lines = shown_by(
    lambda: evaluate(estimator, tmp_path), tmp_path / 'log', capfd
  )
  counts = [
    f'decode, step 100  {number} of 4 examples' for number in range(1, 5)
  ]
  assert lines[1:5] == counts
  assert 'decode, step 200  4 of 4 examples' in lines

  inputs = tmp_path / 'inputs.txt'
  inputs.write_text('one\ntwo\nthree\n')  # the batch of 4 is filled up

  def decode():
    utils.get_inputs_from_file(str(inputs))
    list(estimator.predict(None, checkpoint_path='model.ckpt-7'))

  assert (
    shown_by(decode, tmp_path / 'log', capfd)[-2:]
    == ['decode, step 7  3 of 3 examples'] * 2
  )
  gin.bind_parameter('decode_from_file.repeats', 2)
  *_, last = shown_by(decode, tmp_path / 'log', capfd)
  assert last == 'decode, step 7  4 of 6 examples'


def test_what_was_written_is_named(estimator, tmp_path):
  utils.write_lines_to_file(['a'], f'{tmp_path}/outputs.txt-100')
  estimator.export_saved_model('my_exported')
  assert current.run().outcome.written() == [
    f'Wrote {tmp_path}/outputs.txt-100',
    'Wrote my_exported/170000',
  ]


@pytest.mark.parametrize(
  ('targets', 'predictions', 'reason'),
  [
    ([1.0, 2.0, 3.0], [1.0, float('nan'), 2.0], '1 of 3 predictions read as'),
    ([1.0, 2.0], np.array([np.inf, np.nan]), '2 of 2 predictions read as NaN'),
    ([float('nan'), 2.0], [1.0, 2.0], '1 of 2 targets read as NaN or infinity'),
    ([1.0, 2.0], [3.0, 3.0], 'all predictions are alike'),
    (['a', 'a'], ['b', 'c'], 'all targets are alike'),
    ([1.0, 2.0], [3.0, 4.0], ''),
    ([], [], ''),
  ],
)
def test_why_a_metric_is_no_number(targets, predictions, reason):
  found = evaluations.why_undefined(targets, predictions)
  assert found.startswith(reason) and bool(found) == bool(reason)


def test_the_reason_is_recorded(estimator, tmp_path, monkeypatch):
  monkeypatch.setattr(
    sys.modules[__name__], 'accuracy', lambda *_: {'accuracy': float('nan')}
  )
  monkeypatch.setattr(sys.modules[__name__], 'READ_AS', [2, 2, 2, 2])
  evaluate(estimator, tmp_path)
  found = records.read(str(tmp_path / 'validation_eval'))
  assert {(r.metric, r.value, r.reason) for r, _ in found} == {
    ('accuracy', None, 'all predictions are alike'),
    ('ones', 8.0, ''),
  }


def test_what_a_model_wrote_stays_one_line(tmp_path):
  lines = ['a\nb', 'c\rd', 'e\u2028f'.encode(), b'', b'\xff', 7]
  path = tmp_path / 'made' / 'outputs'
  utils.write_lines_to_file(lines, str(path))
  text = path.read_text(encoding='utf-8')
  assert text.splitlines() == ['a b', 'c d', 'e f', '', '\ufffd', '7']
