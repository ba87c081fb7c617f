"""`synth-mtf attention` on a run of T5's main: texts, tasks, refusals."""

import os
import re
import shutil

import numpy as np
import pytest

from synth_mtf import cli
from synth_mtf.attention import file
from tests import official_files
from tests.cli import t5_main

pytestmark = pytest.mark.slow  # trains


@pytest.fixture(scope='module')
def trained_run(tmp_path_factory):
  """A run of two steps, with R+V in both stacks, and its data."""
  there = official_files.write_text(tmp_path_factory.mktemp('data') / 'texts')
  folder = tmp_path_factory.mktemp('runs') / 'rv'
  status = t5_main.synth_mtf_transformer(
    f'--model_dir={folder}',
    f'--data_dir={there}',
    '--vocabulary=bytes',
    *t5_main.REPEATABLE,
    '--gin_param=utils.run.train_steps = 2',
    '--gin_param=utils.run.batch_size = 2',
  )
  assert status == 0
  return folder, there


@pytest.fixture
def command(trained_run, tmp_path, monkeypatch):
  """Runs the command on the run in an empty folder."""
  folder, there = trained_run
  monkeypatch.chdir(tmp_path)
  # As set by the user: the command adds to the environment of its process.
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(there))

  def run(*words, run=folder):
    return cli.main(['attention', str(run), *words])

  return run


def refused(capsys, status):
  """The message of a command that was refused: one, and nothing written."""
  assert status == 2
  error = capsys.readouterr().err
  assert error.startswith('synth-mtf: error: ')
  assert 'Traceback' not in error
  assert not os.listdir()
  return error


def test_given_texts(command, capsys):
  inputs = ('--text', 'The red boat.', '--text', 'Ä')
  targets = ('--target', 'a', '--target', 'bcd')
  assert command(*inputs, *targets, '--out', 'rv.npz') == 0
  assert 'Syn (R+V), step 2, 2 examples: rv.npz' in capsys.readouterr().out
  found = file.read('rv.npz')
  assert found.axes('cross', 1) == (
    ['<s>', 'b', 'c', 'd'],
    ['<198>', '<135>', '</s>'],
  )
  assert found.stacks['encoder'].weights.shape == (1, 2, 4, 14, 14)
  alpha = found.stacks['decoder'].alpha
  assert alpha is not None and alpha.shape == (1, 4, 2)
  for stack in found.stacks:
    for example in range(2):
      sums = found.weights(stack, example).sum(-1)
      np.testing.assert_allclose(sums, 1, rtol=1e-5)


def test_inputs_alone(command):
  assert command('--text', 'The red boat.', '--step', 'initial') == 0
  found = file.read('attention.npz')
  assert set(found.stacks) == {'encoder'} and found.step == 0


def test_a_file(command, tmp_path):
  (tmp_path / 'texts.txt').write_text('The red boat.\tyes\nA boat.\tno\n')
  assert command('--input', 'texts.txt') == 0
  found = file.read('attention.npz')
  assert list(found.texts['encoder']) == ['The red boat.', 'A boat.']
  assert list(found.texts['decoder']) == ['yes', 'no']


def test_a_task(command):
  assert command('--task', 'synth_text_span_corruption', '--examples', '2') == 0
  found = file.read('attention.npz')
  assert found.examples == 2 and 'cross' in found.stacks


@pytest.mark.parametrize(
  'words, message',
  [
    ((), 'name the text to look at'),
    (('--text', 'a', '--task', 'b'), 'in one way'),
    (('--text', ' '), 'is empty'),
    (('--text', 'a', '--target', 'b', '--target', 'c'), '1 inputs and 2'),
    (('--target', 'b'), 'has an encoder'),
    (('--text', 'x' * 40), 'has 41 tokens, and the model takes 32'),
    (('--text', 'a', '--step', '7'), 'no checkpoint of step 7.*model.ckpt-2'),
    (('--text', 'a', '--out', 'gone/x.npz'), 'there is no folder'),
    (('--task', 'synth_glue_cola'), 'did you mean'),
    (('--input', 'gone.txt'), 'there is no file gone.txt'),
    (('--text', 'a', '--vocabulary', 'gone.model'), 'does not exist'),
  ],
)
def test_refusals(command, capsys, words, message):
  error = refused(capsys, command(*words))
  assert re.search(message, error), error


def test_a_folder_that_is_no_run(command, capsys, tmp_path):
  error = refused(capsys, command('--text', 'a', run=tmp_path))
  assert 'holds no run' in error


def damage(run):
  for path in run.glob('model.ckpt-2.data-*'):
    path.write_bytes(path.read_bytes()[:1000])


def remove_configuration(run):
  for path in [run / 'operative_config.gin', *run.glob('events.out*')]:
    path.unlink()


@pytest.mark.parametrize(
  'change, message',
  [(damage, 'damaged'), (remove_configuration, 'operative_config.gin')],
)
def test_a_run_that_is_not_whole(
  command, capsys, trained_run, tmp_path_factory, change, message
):
  copy = shutil.copytree(trained_run[0], tmp_path_factory.mktemp('x') / 'copy')
  change(copy)
  assert message in refused(capsys, command('--text', 'a', run=copy))


def test_nothing_that_is_there_is_lost(command, tmp_path):
  (tmp_path / 'attention.npz').write_text('mine')
  assert command('--text', 'a', '--step', '9') == 2
  assert (tmp_path / 'attention.npz').read_text() == 'mine'
