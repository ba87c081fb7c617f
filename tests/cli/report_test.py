"""`synth-mtf report`: the page of real runs, trained for two steps."""

import shlex
import shutil

import numpy as np
import pytest

from synth_mtf import cli
from synth_mtf.attention import file
from synth_mtf.report import page
from tests.cli import t5_main
from tests.report.pages import Reader
from tests.report.weights_test import unpack

pytestmark = pytest.mark.slow  # trains

TEXT = ('--text', 'A red boat.', '--target', 'ein Boot')
QUICK = (
  '--vocabulary=bytes',
  *t5_main.REPEATABLE,
  '--gin_param=utils.run.train_steps = 2',
  '--gin_param=utils.run.batch_size = 2',
)


@pytest.fixture(scope='module')
def runs(made_data, tmp_path_factory):
  """R+V, and R with another number of heads."""
  folder = tmp_path_factory.mktemp('runs')
  changes = {
    'rv': (),
    'r': ('--gin_file=variants/random.gin', '--gin_param=num_heads = 2'),
  }
  for name, words in changes.items():
    assert not t5_main.synth_mtf_transformer(
      f'--model_dir={folder / name}', f'--data_dir={made_data}', *QUICK, *words
    )
  return [str(folder / name) for name in changes]


def report(*words):
  return cli.main(['report', *map(str, words)])


@pytest.fixture(scope='module')
def written(runs, tmp_path_factory):
  """The page of both runs."""
  out = tmp_path_factory.mktemp('page') / "it's.html"
  assert report(*runs, '--out', out, *TEXT) == 0
  return out


@pytest.fixture(scope='module')
def read(written):
  return Reader(written.read_text(encoding='utf-8'))


def test_the_table_is_that_of_synth_mtf_table(read, runs, capsys):
  assert cli.main(['table', *runs, '--format', 'markdown']) == 0
  printed = capsys.readouterr().out
  rows = [line for line in printed.splitlines() if line.startswith('|')]
  cells = {
    cell.strip().strip('*') for row in rows[2:] for cell in row.split('|')
  }
  shown = {text.strip() for tag in ('th', 'td') for text in read.content[tag]}
  strong = {text.strip() for text in read.content.get('strong', ())}
  assert 'Syn (R+V)' in cells
  assert cells <= shown | strong | {''}


def test_the_weights_are_those_of_synth_mtf_attention(read, runs, tmp_path):
  for shown, run in zip(read.models, runs):
    path = str(tmp_path / 'x.npz')
    assert cli.main(['attention', run, '--out', path, *TEXT]) == 0
    exact = file.read(path)
    assert shown['label'] == exact.label
    for name, stack in shown['stacks'].items():
      np.testing.assert_allclose(
        unpack(stack, 0, 0), exact.weights(name, 0)[0], atol=1 / 510 + 1e-6
      )


def test_what_differs_is_shown(read):
  cells = [''.join(text) for text in read.content['code']]
  assert 'num_heads' in cells
  at = cells.index('num_heads')
  assert cells[at + 1 : at + 3] == ['4', '2']


def test_its_commands_make_it_again(read, written, monkeypatch, tmp_path):
  (listed,) = [
    text for text in read.content['pre'] if text.startswith('synth-mtf ')
  ]
  commands = [shlex.split(line) for line in listed.splitlines()]
  assert [words[1] for words in commands] == [
    'report', 'table', 'attention', 'attention', 'plot',
  ]  # fmt: skip
  before = written.read_bytes()
  monkeypatch.chdir(tmp_path)
  for words in commands:
    assert cli.main(words[1:]) == 0, words
  assert written.read_bytes() == before
  assert (tmp_path / 'attention_2.npz').exists()
  assert (tmp_path / 'figures' / 'histograms.svg').exists()


def test_a_run_without_configuration_is_reported(runs, tmp_path, capsys):
  bare = tmp_path / 'bare'
  shutil.copytree(runs[0], bare)
  for path in bare.iterdir():
    if not path.name.startswith(('model.ckpt', 'checkpoint')):
      shutil.rmtree(path) if path.is_dir() else path.unlink()
  out = tmp_path / 'report.html'
  assert report(bare, runs[1], '--out', out, *TEXT) == 0
  message = f'No attention of bare, {bare}: {bare} has no operative_config.gin'
  assert message in capsys.readouterr().err
  assert message in out.read_text()
  assert [one['label'] for one in Reader(out.read_text()).models] == ['Syn (R)']


def test_attention_of_a_file(runs, tmp_path):
  path = tmp_path / 'x.npz'
  assert cli.main(['attention', runs[1], '--out', str(path), *TEXT]) == 0
  out = tmp_path / 'report.html'
  assert report(runs[0], '--out', out, '--attention', path) == 0
  (model,) = Reader(out.read_text()).models
  assert model['label'] == 'Syn (R)'


def test_sentences_that_do_not_fit_are_reported(runs, tmp_path, capsys):
  """Those that are shown where no text is given, to rows of 32 bytes."""
  out = tmp_path / 'report.html'
  assert report(runs[0], '--out', out) == 0
  assert 'tokens, and the model takes 32' in capsys.readouterr().err
  assert 'tokens, and the model takes 32' in out.read_text()


@pytest.mark.parametrize(
  'words, message',
  [
    (['no_such'], 'no_such does not exist; expected a model folder'),
    (['{run}', '--attention', 'x.npz'], 'there is no file x.npz'),
    (['{run}', '--layout', 'glue'], 'no run has a score of this table'),
    (['{run}', '--out', 'no/such/x.html'], 'there is no folder'),
    (['{run}', '--out', '.'], 'is a folder; expected a file'),
    (['{run}', '--target', 'x'], 'give an input for each target'),
  ],
)
def test_bad_input_is_one_message_and_nothing_is_written(
  words, message, runs, tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  assert report(*(word.format(run=runs[0]) for word in words)) == 2
  error = capsys.readouterr().err
  assert error.startswith('synth-mtf: error: ')
  assert message in error
  assert not any(tmp_path.iterdir())


def test_only_a_page_of_ours_is_replaced(runs, tmp_path, capsys):
  out = tmp_path / 'report.html'
  out.write_text('<!DOCTYPE html><p>Mine</p>')
  assert report(runs[0], '--out', out, '--no_attention') == 2
  assert 'not a page of `synth-mtf report`' in capsys.readouterr().err
  assert out.read_text() == '<!DOCTYPE html><p>Mine</p>'
  out.unlink()
  for _ in range(2):
    assert report(runs[0], '--out', out, '--no_attention') == 0
  assert page.GENERATOR in out.read_text()
