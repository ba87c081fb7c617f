"""`synth-mtf plot` over runs and files, none of which is trained here."""

import argparse
import dataclasses
import os
import pathlib
import shutil

import gin
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.attention import file as attention_file
from synth_mtf.checkpoints import files
from synth_mtf.cli import plot as command
from synth_mtf.results import records
from synth_mtf.results.kinds import Mixture
from synth_mtf.results.model_facts import ModelFacts
from synth_mtf.results.records import Result
from tests import model
from tests.attention.made import attention
from tests.cli.command import run
from tests.results import made_runs

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.figures import of_runs  # noqa: E402  (needs it)

STEPS = (0, 7)
SLOW = pytest.mark.slow  # builds whole models


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
def plot(request, tmp_path, monkeypatch):
  """Runs the command on RUN and a.npz, in a folder of its own."""
  monkeypatch.chdir(tmp_path)
  attention_file.write('a.npz', attention())

  def plotted(words):
    if 'RUN' in words:
      words = words.replace('RUN', str(request.getfixturevalue('folder')))
    return run('plot', *words.split())

  return plotted


MAPS = {f'heat_maps_{stack}' for stack in ('encoder', 'decoder', 'cross')}


@SLOW
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
    pytest.param('RUN --figures heads', '--figures heads: ', marks=SLOW),
    ('a.npz --figures curves', '--figures curves: curves, scores, alpha need'),
    ('a.npz --figures heads,pies', "there is no figure 'pies'"),
    pytest.param('RUN --steps 0,last', '--steps needs a text', marks=SLOW),
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


@SLOW
def test_a_run_whose_model_is_unknown(plot, folder):
  shutil.copytree(folder, 'bare')
  os.remove('bare/operative_config.gin')
  status, out, _ = plot('bare --text=a --out made')
  assert status == 0
  assert 'No attention of bare, bare: ' in out
  assert 'curves.png' in os.listdir('made')


def test_heat_maps_of_some_layers_and_heads(plot):
  """The cross-attention has two layers."""
  deep, shallow = attention(layers=3).stacks, attention(layers=2).stacks
  stacks = {**deep, 'cross': shallow['cross']}
  attention_file.write('b.npz', dataclasses.replace(attention(), stacks=stacks))
  status, out, _ = plot(
    'b.npz --figures heat_maps --layers 3 --heads 2 --values logits'
  )
  assert status == 0
  maps = ('encoder', 'decoder')
  assert out.splitlines() == [
    f'figures/heat_maps_{stack}.{kind}'
    for stack in maps
    for kind in ('png', 'svg')
  ]
  drawn = pathlib.Path('figures/heat_maps_decoder.svg').read_text()
  assert 'layer 3, head 2' in drawn and 'step 100, decoder' in drawn
  assert '>B<' in drawn, 'the unit of logits'


def test_heat_maps_of_several_models_and_texts():
  one = attention(stacks=['encoder'], layers=1)
  tokens = {
    side: np.concatenate([of_one, of_one[:, ::-1]])
    for side, of_one in one.tokens.items()
  }
  two = dataclasses.replace(one, run='runs/y', tokens=tokens)
  args = argparse.Namespace(values='weights', layers=None, heads=[1])
  drawn = dict(command._draw_heat_maps(args, [one, two]))  # noqa: SLF001
  assert {name: map_.get_suptitle() for name, map_ in drawn.items()} == {
    'heat_maps_1_encoder': 'Syn (R), x, step 100, encoder',
    'heat_maps_2_encoder_text_1': 'Syn (R), y, step 100, encoder',
    'heat_maps_2_encoder_text_2': 'Syn (R), y, step 100, encoder',
  }
  queries = [
    [label.get_text() for label in map_.axes[0].get_yticklabels()]
    for map_ in drawn.values()
  ]
  assert queries[0] == queries[1] == queries[2][::-1]


def test_what_is_not_drawn_is_said(plot, monkeypatch):
  """Of a run with a loss, and of one without."""
  made_runs.events('one', *((step, {'loss': 5.0 - step}) for step in (1, 2)))
  files.write('two', 2, {'w': np.zeros(1)})
  curves = of_runs.curves
  monkeypatch.setattr(of_runs, 'curves', lambda *given: curves(*given) * 2)
  status, out, _ = plot('one two --figures curves,scores')
  assert status == 0
  assert out.splitlines() == [
    *(f'figures/curves.{kind}' for kind in ('png', 'svg')),
    *(f'figures/curves_2.{kind}' for kind in ('png', 'svg')),
    'No curve of two, two: it has neither event files of training nor '
    'evaluations',
    'No scores: no evaluation is in one, two',
  ]
  status, out, err = plot('one --figures scores --out new')
  assert (status, out) == (2, 'No scores: no evaluation is in one\n')
  assert 'nothing was drawn' in err
  status, _, err = plot('one --figures heads --text a --out new')
  assert (status, 'No attention of one, one: ' in err) == (2, True), err
  assert not os.path.exists('new')


def mixing(folder, label):
  """A run with an alpha in its checkpoint."""
  name = 'encoder/block_000/layer_000/SyntheticAttention'
  files.write(folder, 2, {f'{name}/alpha': np.zeros([1, 2])})
  kind = made_runs.KINDS['T5 (V)']
  facts = ModelFacts(kind, [Mixture(name, 'encoder', 1, ['R', 'V'])])
  return made_runs.fake(folder, label=label, facts=facts, folders=[folder])


def test_alpha_of_each_run_that_mixes_functions(tmp_path):
  """Whatever the others are."""
  runs = [
    mixing(f'{tmp_path}/{name}', label)
    for name, label in (('a', 'Syn (R+V)'), ('b', 'Syn (R+V)'), ('c', 'mine'))
  ]
  unknown = made_runs.fake('unknown', folders=[])
  vanilla = made_runs.fake('v', label='T5 (V)', folders=[])
  args = argparse.Namespace(layers=None)

  def drawn(*given):
    missing: list[str] = []
    found = command._draw_alpha(args, given, missing)  # noqa: SLF001
    titles = {
      name: figure.legends[0].get_title().get_text() for name, figure in found
    }
    return titles, missing

  assert drawn(runs[0]) == ({'alpha': 'Syn (R+V)'}, [])
  assert drawn(unknown, vanilla, *runs) == (
    {
      'alpha_1': 'Syn (R+V), a',
      'alpha_2': 'Syn (R+V), b',
      'alpha_3': 'mine',
    },
    ['No alpha of unknown, unknown: unknown has no configuration'],
  )
