"""`synth-mtf attention` and `report` on runs, most trained for two steps."""

import html
import os
import re
import shlex
import shutil

import numpy as np
import pytest

from synth_mtf.attention import file
from synth_mtf.cli import attention
from synth_mtf.report import page
from tests.attention import made
from tests.cli import t5_main
from tests.cli.command import run
from tests.report.pages import Reader
from tests.report.weights_test import unpack
from tests.results import made_runs

SLOW = pytest.mark.slow  # trains
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
def here(tmp_path, monkeypatch, made_data):
  """An empty working folder, and data as the user names it."""
  folder = tmp_path / 'here'
  folder.mkdir()
  monkeypatch.chdir(folder)
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(made_data))
  return folder


ENCODED = {'encoder': ['The red boat.']}
PAIRS = {'encoder': ['The red boat.', 'Ä'], 'decoder': ['yes', 'no']}


@SLOW
@pytest.mark.parametrize(
  'words, step, texts',
  [
    (['--text=The red boat.', '--step=initial'], 0, ENCODED),
    (['--input=texts.txt', '--step=2'], 2, PAIRS),
    (
      ['--text=The red boat.', '--target=yes', '--text=Ä', '--target=no'],
      2,
      PAIRS,
    ),
    (['--task=synth_text_span_corruption', '--examples=2'], 2, None),
  ],
)
def test_ways_to_name_a_text(runs, here, words, step, texts):
  (here / 'texts.txt').write_text('The red boat.\tyes\nÄ\tno\n')
  status, out, _ = run('attention', runs[0], *words, '--out=rv.npz')
  assert status == 0
  found = file.read('rv.npz')
  number = f'{found.examples} example{"s" * (found.examples > 1)}'
  assert f'(R+V), step {step}, {number}: rv.npz' in out
  assert found.step == step
  if texts:
    assert {side: list(of) for side, of in found.texts.items()} == texts
  else:
    assert found.examples == 2 and set(found.texts) == {'encoder', 'decoder'}


@pytest.fixture(scope='module')
def written(runs, tmp_path_factory):
  """The page of both runs."""
  out = tmp_path_factory.mktemp('page') / "it's.html"
  assert run('report', *runs, '--out', out, *TEXT)[0] == 0
  return out


@pytest.fixture(scope='module')
def read(written):
  return Reader(written.read_text(encoding='utf-8'))


@SLOW
def test_the_table_is_that_of_synth_mtf_table(read, runs):
  _, out, _ = run('table', *runs, '--format', 'markdown')
  rows = [line for line in out.splitlines() if line.startswith('|')]
  cells = {
    cell.strip().strip('*') for row in rows[2:] for cell in row.split('|')
  }
  tags = ('th', 'td', 'strong')
  shown = {text.strip() for tag in tags for text in read.content.get(tag, ())}
  assert 'Syn (R+V)' in cells
  assert cells <= shown | {''}


@SLOW
def test_its_command_makes_it_again(read, written, runs, here):
  """And a page of an .npz file has the same weights."""
  (listed,) = [x for x in read.content['pre'] if x.startswith('synth-mtf ')]
  before = written.read_bytes()
  assert run(*shlex.split(listed)[1:])[0] == 0
  assert written.read_bytes() == before
  assert run('attention', runs[1], '--out=r.npz', *TEXT)[0] == 0
  assert run('report', runs[0], '--attention=r.npz')[0] == 0
  (model,) = Reader((here / 'report.html').read_text()).models
  assert model == {**read.models[1], 'run': model['run']}
  exact = file.read('r.npz')
  assert model['label'] == exact.label == 'Syn (R)'
  for name, stack in model['stacks'].items():
    np.testing.assert_allclose(
      unpack(stack, 0, 0), exact.weights(name, 0)[0], atol=1 / 510 + 1e-6
    )


@SLOW
def test_a_run_without_configuration_is_reported(runs, here, tmp_path):
  copy = shutil.copytree(runs[0], tmp_path / 'copy')
  for path in copy.iterdir():
    if not path.name.startswith(('model.ckpt', 'checkpoint')):
      shutil.rmtree(path) if path.is_dir() else path.unlink()
  status, _, err = run('report', copy, runs[1], *TEXT)
  assert status == 0
  message = f'No attention of copy, {copy}: {copy} has no operative'
  made = (here / 'report.html').read_text()
  assert message in err
  assert message in made
  assert [one['label'] for one in Reader(made).models] == ['Syn (R)']


@SLOW
@pytest.mark.parametrize(
  'words, message',
  [
    ('attention {}', 'a text of the encoder has .* shorten it'),
    ('attention {} --text=a --step=7', 'no checkpoint .*-7; .*model.ckpt-2'),
    ('attention {} --text=a --step=first', 'no checkpoint .*ckpt-first'),
    ('attention {} --text=a --out=gone/x.npz', 'expected a file'),
    ('attention {} --text=a --out=.', 'expected a file'),
    ('attention {} --task=synth_glue_cola', 'did you mean'),
    ('attention {} --input=gone.txt', 'gone.txt is missing or empty'),
    (
      'attention {} --text=a --vocabulary=gone.model',
      '--vocabulary: gone.model does not exist',
    ),
    ('attention {}/../broken --text=a', 'damaged'),
    ('report no_such', 'no_such does not exist; expected a model folder'),
    ('report {} --attention=x.npz', 'x.npz does not exist; .* writes one'),
    ('report {} --out=no/such/x.html', 'expected a file'),
    ('report {} --target=x', 'expected inputs'),
    ('report {} --attention=x.npz --text=a', 'leave it out to use --text'),
  ],
)
@pytest.mark.usefixtures('here')
def test_bad_input(runs, words, message):
  if 'broken' in words:
    broken = shutil.copytree(runs[0], os.path.dirname(runs[0]) + '/broken')
    for name in os.listdir(broken):
      if name.startswith('model.ckpt-2.data-'):
        os.truncate(os.path.join(broken, name), 1000)
  status, _, err = run(*words.format(runs[0]).split())
  assert status == 2
  assert err.startswith('synth-mtf: error: ')
  assert re.search(message, err), err
  assert os.listdir() == []


@SLOW
def test_nothing_else_is_replaced(runs, here):
  """By a command that is refused, or by a page."""
  for words in (
    ('attention', runs[0], '--text=a', '--step=9', '--out=mine'),
    ('report', runs[0], '--out=mine'),
  ):
    (here / 'mine').write_bytes(b'\xff<p>Mine</p>')
    assert run(*words)[0] == 2
    assert (here / 'mine').read_bytes() == b'\xff<p>Mine</p>'
  for _ in range(2):
    assert run('report', runs[0])[0] == 0
  assert page.GENERATOR in (here / 'report.html').read_text()


@pytest.fixture
def bare(tmp_path, monkeypatch):
  """Runs with a score and no configuration, in the working folder."""
  monkeypatch.chdir(tmp_path)
  for name in ('one', 'two'):
    made_runs.evaluated(name, made_runs.COLA, 2, {'matthews_corrcoef': 0.5})
  return tmp_path


@pytest.mark.usefixtures('bare')
def test_a_page_of_a_file_and_a_table_of_the_paper():
  file.write('a.npz', made.random_attention())
  words = ['report', 'one', 'two', '--attention=a.npz', '--layout=glue']
  status, out, err = run(*words, '--out=a.html')
  assert (status, out, err) == (0, '2 runs: a.html\n', '')
  with open('a.html', encoding='utf-8') as page_:
    text = page_.read()
  shown = Reader(text)
  assert [model['label'] for model in shown.models] == ['Syn (R)']
  assert 'GLUE, as in Table 5. ' in text
  assert f'synth-mtf {" ".join(words)} --out=a.html' in shown.content['pre']


@pytest.mark.usefixtures('bare')
def test_attention_that_is_not_there_is_missing_unless_it_is_asked_for():
  status, out, err = run('report', 'one')
  assert (status, out) == (0, '1 run: report.html\n')
  assert err.startswith('No attention of one, one: there is no checkpoint')
  with open('report.html', encoding='utf-8') as page_:
    assert html.escape(err.strip()) in page_.read()
  status, _, asked = run('report', 'one', '--text=a', '--out=b.html')
  assert status == 2
  assert err.strip() in asked
  assert not os.path.exists('b.html')


def test_the_attention_of_a_model_is_that_of_its_first_seed(bare, monkeypatch):
  for seed in (1, 2):
    binding = f'mesh_train_dataset_fn.seed = {seed}'
    made_runs.trained(bare / f'seed_{seed}', 'random', [binding])
  looked = []

  def look(args, runs, steps):
    looked.append(([run.name for run in runs], steps))
    return [], []

  monkeypatch.setattr(attention, 'look_at_each', look)
  status, out, _ = run('report', 'seed_1', 'seed_2', 'one')
  assert (status, out) == (0, '3 runs: report.html\n')
  assert looked == [(['seed_1', 'one'], ['last'])]
  made_page = (bare / 'report.html').read_text(encoding='utf-8')
  assert '<title>Syn (R), one</title>' in made_page
