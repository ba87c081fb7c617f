"""`synth-mtf plot` over runs and files, none of which is trained here."""

import os
import re

import gin
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf import cli
from synth_mtf.attention import file as attention_file
from synth_mtf.results import records
from synth_mtf.results.records import Result
from tests import model
from tests.attention.made import attention

pytest.importorskip('matplotlib', reason='the extra [plot]')
pytestmark = pytest.mark.slow  # builds whole models

STEPS = (0, 7)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A run: checkpoints, its configuration, a curve and results."""
  there = tmp_path_factory.mktemp('run')
  for step in STEPS:
    model.write(there, 'random_vanilla', step=step)
  (there / 'operative_config.gin').write_text(gin.config_str())
  with tf.Graph().as_default():
    writer = tf.summary.FileWriter(str(there))
    for step in range(5):
      value = tf.Summary.Value(tag='loss', simple_value=5.0 - step)
      writer.add_summary(tf.Summary(value=[value]), step)
    writer.close()
  evaluated = there / 'validation_eval'
  evaluated.mkdir()
  result = Result('t', 'validation', 'f1', 30.0, 9, 'example', None, 7)
  records.add_results(str(evaluated), [result], {'versions': {}, 'gin': ''})
  return there


@pytest.fixture
def npz(tmp_path):
  path = str(tmp_path / 'a.npz')
  attention_file.write(path, attention())
  return path


def written(out):
  """The names of the figures, each of which is there in both formats."""
  names = {name.rsplit('.', 1)[0] for name in os.listdir(out)}
  files = {f'{name}.{kind}' for name in names for kind in ('png', 'svg')}
  assert set(os.listdir(out)) == files
  return names


def test_runs(folder, tmp_path, capsys):
  out = tmp_path / 'figures'
  assert cli.main(['plot', str(folder), '--out', str(out)]) == 0
  assert written(out) == {'curves', 'scores', 'alpha'}
  assert str(out / 'alpha.svg') in capsys.readouterr().out


def test_a_file(npz, tmp_path):
  out = tmp_path / 'figures'
  assert cli.main(['plot', npz, '--out', str(out)]) == 0
  maps = {f'heat_maps_{stack}' for stack in ('encoder', 'decoder', 'cross')}
  assert written(out) == {'histograms', 'heads', *maps}


def test_a_run_and_a_file(folder, npz, tmp_path):
  out = tmp_path / 'figures'
  words = ('--figures', 'curves,heads', '--out', str(out))
  assert cli.main(['plot', str(folder), npz, *words]) == 0
  assert written(out) == {'curves', 'heads'}


def test_one_figure(npz, tmp_path):
  out = tmp_path / 'figures'
  words = ('--figures', 'histograms', '--layers', '2,6', '--out', str(out))
  assert cli.main(['plot', npz, *words]) == 0
  assert written(out) == {'histograms'}


@pytest.mark.parametrize(
  'words, message',
  [
    (('RUN', '--figures', 'heads'), 'say in which text'),
    (('NPZ', '--figures', 'curves'), 'is drawn of runs; give a folder'),
    (('NPZ', '--layers', '9', '--figures', 'histograms'), 'no layer 9'),
    (('gone.npz',), 'gone.npz is not a file'),
    (('gone',), 'gone does not exist'),
    (('NPZ', '--out', 'NPZ/figures'), 'a folder that you may write to'),
  ],
)
def test_refusals(folder, npz, tmp_path, capsys, monkeypatch, words, message):
  monkeypatch.chdir(tmp_path)
  names = {'RUN': str(folder), 'NPZ': npz}
  named = [names.get(word, word.replace('NPZ', npz)) for word in words]
  assert cli.main(['plot', *named]) == 2
  printed = capsys.readouterr()
  assert re.search(message, printed.err + printed.out)
  assert 'Traceback' not in printed.err
  assert os.listdir() == ['a.npz']


@pytest.mark.parametrize(
  'words',
  [
    ('--figures', 'pies'),
    ('--layers', 'one'),
    ('--steps', 'first'),
    ('--values', 'both'),
  ],
)
def test_words_that_are_none(npz, capsys, words):
  with pytest.raises(SystemExit):
    cli.main(['plot', npz, *words])
  assert 'expected' in (found := capsys.readouterr().err) or 'choice' in found
