"""Which run is looked at with which checkpoints, before its model is built."""

import os

import gin
import pytest

from synth_mtf import tasks
from synth_mtf.attention import runs as attention
from synth_mtf.attention import weights as analysis
from synth_mtf.errors import UserError
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
    attention.look(str(folder), steps, must_not_choose, vocabulary)


def test_examples_are_chosen_once_gin_holds_the_run(trained):
  gin.parse_config('SelfAttention.num_heads = 77')  # of whatever was before

  def look_around():
    assert '@synth_mtf.Dense' in gin.config_str()
    assert '77' not in gin.config_str()
    assert tasks.settings().vocabulary == 'bytes'
    assert analysis.sides() == ['encoder', 'decoder']
    raise Chosen

  with pytest.raises(Chosen):
    attention.look(str(trained), [attention.INITIAL], look_around, 'bytes')


def test_initial_weights_need_no_checkpoint(trained):
  for path in [*trained.glob('model.ckpt-*'), trained / 'checkpoint']:
    path.unlink()
  refused(trained, [attention.LAST], 'has no checkpoint yet; --step initial')
  with pytest.raises(Chosen):
    attention.look(str(trained), [attention.INITIAL], choose, 'bytes')


@pytest.mark.parametrize('steps', [[7], [attention.INITIAL, 7]])
def test_a_step_that_is_not_there(trained, steps):
  refused(trained, steps, 'no checkpoint of step 7. .*run holds model.ckpt-100')


@pytest.mark.parametrize('step', [attention.LAST, 100])
def test_a_checkpoint_of_another_vocabulary(trained, step):
  """It has 128 embeddings, and bytes take 384."""
  refused(trained, [step], 'has 128 rows; the vocabulary .* makes 384')


def test_without_its_configuration(trained):
  (trained / 'operative_config.gin').unlink()
  refused(trained, [attention.LAST], 'does not say what its model is: .*gin')


def test_a_folder_of_several_runs(tmp_path):
  made_runs.demo(tmp_path, ['random', 'dense'])
  for variant in ('dense', 'random'):
    made_runs.trained(tmp_path / variant / 'finetune', variant)
  names = [os.path.join(tmp_path, name) for name in ('random', 'dense')]
  refused(
    tmp_path,
    [attention.LAST],
    f'holds 2 runs; give one of them: {" ".join(names)}$',
  )


def test_a_folder_that_is_no_run(tmp_path):
  refused(tmp_path, [attention.LAST], 'holds no run')
