"""`synth-mtf attention` and `report` on runs trained for two steps."""

import os
import re
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
      f'--model_dir={folder / name}',
      f'--data_dir={made_data}',
      '--vocabulary=bytes',
      *t5_main.REPEATABLE,
      '--gin_param=utils.run.train_steps = 2',
      '--gin_param=utils.run.batch_size = 2',
      *words,
    )
  return [str(folder / name) for name in changes]


@pytest.fixture
def copied_run(runs, tmp_path):
  """A copy of R+V, to be damaged."""
  return shutil.copytree(runs[0], tmp_path / 'copy')


@pytest.fixture
def here(tmp_path, monkeypatch, made_data):
  """An empty working folder, and data as the user names it."""
  folder = tmp_path / 'here'
  folder.mkdir()
  monkeypatch.chdir(folder)
  # Set, because commands add to the environment of their process.
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(made_data))
  return folder


def report(*words):
  return cli.main(['report', *map(str, words)])


def attention(*words):
  return cli.main(['attention', *map(str, words)])


def test_attention_of_texts(runs, here, capsys):
  words = ['--text', 'The red boat.', '--text', 'Ä']
  words += ['--target', 'a', '--target', 'bcd', '--out', 'rv.npz']
  assert attention(runs[0], *words) == 0
  assert 'Syn (R+V), step 2, 2 examples: rv.npz' in capsys.readouterr().out
  found = file.read('rv.npz')
  assert found.axes('cross', 1) == (
    ['<s>', 'b', 'c', 'd'],
    ['<198>', '<135>', '</s>'],
  )
  assert found.stacks['encoder'].weights.shape == (1, 2, 4, 14, 14)
  alpha = found.stacks['decoder'].alpha
  assert alpha is not None and alpha.shape == (1, 4, 2)


@pytest.mark.parametrize(
  'words, step, texts',
  [
    (
      ['--text', 'The red boat.', '--step', 'initial'],
      0,
      {'encoder': ['The red boat.']},
    ),
    (
      ['--input', 'texts.txt', '--step', '2'],
      2,
      {'encoder': ['The red boat.', 'Ä'], 'decoder': ['yes', 'no']},
    ),
    (['--task', 'synth_text_span_corruption', '--examples', '2'], 2, None),
  ],
)
def test_ways_to_name_a_text(runs, here, words, step, texts):
  (here / 'texts.txt').write_text('The red boat.\tyes\nÄ\tno\n')
  assert attention(runs[0], *words) == 0
  found = file.read('attention.npz')
  assert found.step == step
  if texts is None:
    assert found.examples == 2 and set(found.texts) == {'encoder', 'decoder'}
  else:
    assert {side: list(of) for side, of in found.texts.items()} == texts


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
  tags = ('th', 'td', 'strong')
  shown = {text.strip() for tag in tags for text in read.content.get(tag, ())}
  assert 'Syn (R+V)' in cells
  assert cells <= shown | {''}


def test_what_differs_is_shown(written):
  row = '<th scope="row">num_heads</th><td>4</td><td>2</td>'
  assert row in written.read_text()


def test_its_commands_make_it_again(read, written, here):
  """And its parts: the viewer has the weights of the .npz files."""
  (listed,) = [
    text for text in read.content['pre'] if text.startswith('synth-mtf ')
  ]
  commands = [shlex.split(line) for line in listed.splitlines()]
  assert [words[1] for words in commands] == [
    'report', 'table', 'attention', 'attention', 'plot',
  ]  # fmt: skip
  before = written.read_bytes()
  for words in commands:
    assert cli.main(words[1:]) == 0, words
  assert written.read_bytes() == before
  assert (here / 'figures' / 'histograms.svg').exists()
  for number, shown in enumerate(read.models, 1):
    exact = file.read(f'attention_{number}.npz')
    assert shown['label'] == exact.label
    for name, stack in shown['stacks'].items():
      np.testing.assert_allclose(
        unpack(stack, 0, 0), exact.weights(name, 0)[0], atol=1 / 510 + 1e-6
      )
  assert report(runs_of(commands)[0], '--attention', 'attention_2.npz') == 0
  (model,) = Reader((here / 'report.html').read_text()).models
  assert model['label'] == 'Syn (R)'


def runs_of(commands):
  return [words[2] for words in commands if words[1] == 'attention']


def test_a_run_without_configuration_is_reported(
  runs, copied_run, here, capsys
):
  for path in copied_run.iterdir():
    if not path.name.startswith(('model.ckpt', 'checkpoint')):
      shutil.rmtree(path) if path.is_dir() else path.unlink()
  assert report(copied_run, runs[1], *TEXT) == 0
  message = f'No attention of copy, {copied_run}: {copied_run} has no operative'
  made = (here / 'report.html').read_text()
  assert message in capsys.readouterr().err
  assert message in made
  assert [one['label'] for one in Reader(made).models] == ['Syn (R)']


def test_sentences_that_do_not_fit_are_reported(runs, here, capsys):
  """Those that are shown where no text is given, to rows of 32 bytes."""
  assert report(runs[0]) == 0
  assert 'tokens, and the model takes 32' in capsys.readouterr().err
  made = (here / 'report.html').read_text()
  assert 'tokens, and the model takes 32' in made


def refused(capsys, status, *expected):
  """Expects one message, and nothing written."""
  assert status == 2
  error = capsys.readouterr().err
  assert error.startswith('synth-mtf: error: ')
  assert 'Traceback' not in error
  for pattern in expected:
    assert re.search(pattern, error), error
  assert os.listdir() == []


@pytest.mark.parametrize(
  'words, message',
  [
    ('attention {}', 'name the text to look at'),
    ('attention {} --text=a --task=b', 'in one way'),
    ('attention {} --text=a --examples=0', 'at least one of its --examples'),
    ('attention {} --target=b', 'expected inputs'),
    ('attention {} --text=a --step=7', 'no checkpoint .*-7; .*model.ckpt-2'),
    ('attention {} --text=a --out=gone/x.npz', 'expected a file'),
    ('attention {} --text=a --out=.', 'expected a file'),
    ('attention {} --task=synth_glue_cola', 'did you mean'),
    ('attention {} --input=gone.txt', 'gone.txt cannot be read'),
    ('attention {} --text=a --vocabulary=gone.model', 'cannot be read as'),
    ('report no_such', 'no_such does not exist; expected a model folder'),
    ('report {} --attention=x.npz', 'x.npz is not a file'),
    ('report {} --layout=glue', 'no run has a score of this table'),
    ('report {} --out=no/such/x.html', 'expected a file'),
    ('report {} --target=x', 'expected inputs'),
  ],
)
@pytest.mark.usefixtures('here')
def test_bad_input(runs, words, message, capsys):
  refused(capsys, cli.main(words.format(runs[0]).split()), message)


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
@pytest.mark.usefixtures('here')
def test_a_run_that_is_not_whole(copied_run, change, message, capsys):
  change(copied_run)
  refused(capsys, attention(copied_run, '--text=a'), message)


def test_what_is_there_is_replaced_by_nothing_else(runs, here, capsys):
  """By no command that is refused, and by no page unless it is one."""
  (here / 'attention.npz').write_text('mine')
  assert attention(runs[0], '--text=a', '--step=9') == 2
  assert (here / 'attention.npz').read_text() == 'mine'
  out = here / 'report.html'
  out.write_text('<!DOCTYPE html><p>Mine</p>')
  assert report(runs[0], '--no_attention') == 2
  assert 'not a page of `synth-mtf report`' in capsys.readouterr().err
  assert out.read_text() == '<!DOCTYPE html><p>Mine</p>'
  out.unlink()
  for _ in range(2):
    assert report(runs[0], '--no_attention') == 0
  assert page.GENERATOR in out.read_text()
