"""Which run is looked at with which checkpoints, before its model is built."""

import os

import gin
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from synth_mtf.attention import examples, runs
from synth_mtf.checkpoints import vocabulary as vocabularies
from synth_mtf.errors import UserError
from synth_mtf.results import runs as results
from tests.results import made_runs

# What T5's main binds, for a run on one device.
BINDINGS = (
  "utils.run.mesh_shape = ''",
  "get_vocabulary.mixture_or_task_name = 'synth_text_span_corruption'",
)


class Chosen(Exception):
  """Raised where examples are to be chosen."""


def choose():
  raise Chosen


def must_not_choose():
  raise AssertionError('refused too late')


@pytest.fixture
def trained(tmp_path):
  """A run with a checkpoint of step 100."""
  folder = tmp_path / 'run'
  made_runs.trained(folder, 'dense_vanilla', BINDINGS)
  return folder


def refused(folder, steps, match, vocabulary='bytes'):
  with pytest.raises(UserError, match=match):
    runs.look(str(folder), steps, must_not_choose, vocabulary)


def test_examples_are_chosen_once_gin_holds_the_run(trained):
  gin.parse_config('SelfAttention.num_heads = 77')  # of whatever was before

  def look_around():
    assert '@synth_mtf.Dense' in gin.config_str()
    assert '77' not in gin.config_str()
    assert tasks.settings().vocabulary == 'bytes'
    assert examples.sides() == ['encoder', 'decoder']
    raise Chosen

  with pytest.raises(Chosen):
    runs.look(str(trained), [runs.INITIAL], look_around, 'bytes')


def test_initial_weights_need_no_checkpoint(trained):
  for path in [*trained.glob('model.ckpt-*'), trained / 'checkpoint']:
    path.unlink()
  refused(trained, [runs.LAST], 'has no checkpoint yet; --step initial')
  with pytest.raises(Chosen):
    runs.look(str(trained), [runs.INITIAL], choose, 'bytes')


@pytest.mark.parametrize('steps', [[7], [runs.INITIAL, 7]])
def test_a_step_that_is_not_there(trained, steps):
  refused(trained, steps, 'no checkpoint of step 7. .*run holds model.ckpt-100')


@pytest.mark.parametrize('step', [runs.LAST, 100])
def test_a_checkpoint_of_another_vocabulary(trained, step):
  """It has 128 embeddings, and bytes take 384."""
  refused(trained, [step], 'has 128 rows; the vocabulary .* needs 384')


def test_a_vocabulary_that_takes_a_network(trained, monkeypatch):
  def fail(*_):
    text = 'Error of HTTP\n\t when reading metadata of gs://t5-data/vocabs/x'
    raise tf.errors.FailedPreconditionError(None, None, text)

  monkeypatch.setattr(vocabularies, 'check', fail)
  message = "^T5's own vocabulary gs://t5-data/vocabs/x cannot be read: Error"
  refused(trained, [runs.LAST], message, None)


def test_without_its_configuration(trained):
  (trained / 'operative_config.gin').unlink()
  refused(trained, [runs.LAST], 'has no operative_config.gin')


def test_a_folder_of_several_runs(tmp_path):
  made_runs.demo(tmp_path, ['random', 'dense'])
  for variant in ('dense', 'random'):
    made_runs.trained(tmp_path / variant / 'finetune', variant)
  names = [os.path.join(tmp_path, name) for name in ('random', 'dense')]
  refused(
    tmp_path,
    [runs.LAST],
    f'holds 2 runs; give one of them: {" ".join(names)}$',
  )


def test_a_folder_that_is_no_run(tmp_path):
  refused(tmp_path, [runs.LAST], 'holds no run')


def test_runs_that_cannot_be_looked_at_are_reported(tmp_path):
  for variant in ('random', 'dense'):
    made_runs.trained(tmp_path / variant, variant, BINDINGS)
  (tmp_path / 'dense' / 'operative_config.gin').unlink()
  found = results.read_all([str(tmp_path / n) for n in ('random', 'dense')])
  attentions, missing = runs.look_at_each(found, examples.defaults, 'bytes')
  assert attentions == []
  first, second = missing
  assert first.startswith(f'No attention of Syn (R), {tmp_path}/random: ')
  assert 'has 128 rows' in first
  assert second.startswith(f'No attention of dense, {tmp_path}/dense: ')
  assert 'has no operative_config.gin' in second
