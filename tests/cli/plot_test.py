"""`synth-mtf plot` over runs and files, none of which is trained here."""

import os
import shutil

import gin
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.attention import file as attention_file
from synth_mtf.results import records
from synth_mtf.results.records import Result
from tests import model
from tests.attention.made import attention
from tests.cli.command import run

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
def plot(folder, tmp_path, monkeypatch):
  """Runs the command on RUN and a.npz, in a folder of its own."""
  monkeypatch.chdir(tmp_path)
  attention_file.write('a.npz', attention())
  return lambda words: run('plot', *words.replace('RUN', str(folder)).split())


MAPS = {f'heat_maps_{stack}' for stack in ('encoder', 'decoder', 'cross')}


@pytest.mark.parametrize(
  'words, figures',
  [
    ('RUN', {'curves', 'scores', 'alpha'}),
    ('a.npz', {'histograms', 'heads', *MAPS}),
    ('RUN a.npz --figures curves,heads', {'curves', 'heads'}),
    ('a.npz --figures histograms --layers 2,6', {'histograms'}),
  ],
)
def test_figures(plot, words, figures):
  status, out, _ = plot(f'{words} --out made/here')
  assert status == 0
  files = {f'{name}.{kind}' for name in figures for kind in ('png', 'svg')}
  assert set(os.listdir('made/here')) == files
  lines = out.splitlines()
  written = {line for line in lines if line.startswith('made/')}
  notes = [line for line in lines if line not in written]
  assert written == {f'made/here/{file}' for file in files}
  assert [note.rpartition(', since ')[2] for note in notes] == (
    ['its steps per second cannot be read'] * ('scores' in figures)
  )


@pytest.mark.parametrize(
  'words, message',
  [
    ('RUN --figures heads', '--figures heads: '),
    ('a.npz --figures curves', '--figures curves: curves, scores, alpha need'),
    ('a.npz --figures heads,pies', "there is no figure 'pies'"),
    ('RUN --steps initial,last', '--steps needs a text'),
    ('a.npz --layers 9 --figures histograms', 'no layer 9'),
    ('gone.npz', "gone.npz does not exist; did you mean 'a.npz'"),
    ('gone', 'gone does not exist'),
    ('a.npz --out a.npz/figures', '--out: a.npz/figures cannot be written'),
  ],
)
def test_refusals(plot, words, message):
  status, out, err = plot(words)
  assert status == 2
  assert message in err + out
  assert os.listdir() == ['a.npz']


@pytest.mark.parametrize('words', ['--layers one', '--values both'])
def test_words_that_are_none(plot, capsys, words):
  with pytest.raises(SystemExit):
    plot(f'a.npz {words}')


def test_a_run_whose_model_is_unknown(plot, folder):
  shutil.copytree(folder, 'bare')
  os.remove('bare/operative_config.gin')
  status, out, _ = plot('bare --text=a --out made')
  assert status == 0
  assert 'No attention of bare, bare: ' in out
  assert 'curves.png' in os.listdir('made')
