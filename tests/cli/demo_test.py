"""`synth-mtf demo`: very short runs of the real command.

The tests share one run with default data, which is killed once. Other runs
train on its data.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.cli import demo
from tests import checkout, official_files
from tests.cli.command import PROGRAM, run
from tests.report.pages import Reader

pytestmark = pytest.mark.slow  # trains

TASK = 'synth_super_glue_cb_v102'
STEPS, FINETUNE_STEPS = 4, 60
QUICK = (
  '--steps',
  str(STEPS),
  '--eval_examples',
  '2',
  '--gin_param',
  'num_layers = 1',
  '--gin_param',
  'utils.run.batch_size = 4',
)


def content(folder):
  return {p: p.read_bytes() for p in folder.rglob('*') if p.is_file()}


def checkpoints(folder):
  return {p.name: p.stat().st_mtime_ns for p in folder.glob('model.ckpt-*')}


@pytest.fixture(scope='module')
def killed(tmp_path_factory):
  """A run with default data that went on after kill -9 as it finetuned.

  Its folder, the result of its command, and its pretrained checkpoints.
  """
  folder = tmp_path_factory.mktemp('demo') / 'run'
  words = [PROGRAM, 'demo', '--out', folder, '--variants', 'random', *QUICK]
  words += ['--finetune_steps', str(FINETUNE_STEPS), '--seeds', '3']
  running = subprocess.Popen(words, stdout=subprocess.DEVNULL)
  wait_for(lambda: list(folder.glob('*/finetune/model.ckpt-16.index')), running)
  running.send_signal(signal.SIGKILL)
  running.wait()
  before = checkpoints(folder / 'random' / 'pretrain')
  # As for users: the tests show more of TensorFlow's messages.
  environment = {**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'}
  done = checkout.run(*words, timeout=None, env=environment)
  return folder, done, before


def test_it_prints_the_table_and_where_everything_is(killed):
  folder, done, _ = killed
  (header, rule, row, examples) = [
    line for line in done.stdout.splitlines() if line.startswith('|')
  ]
  columns = [cell.strip() for cell in header.strip('|').split('|')]
  assert len(columns) == 23
  assert columns[:3] + columns[-2:] == [
    'Model',
    'GLUE',
    'CoLA',
    'Steps/s',
    'Params',
  ]
  assert row.startswith('| Syn (R) |')
  found = [cell.strip() for cell in examples.strip('|').split('|')]
  assert found[0] == 'n'
  assert found.count('2') + found.count('2/2') == 15
  assert ' '.join(found).count('question') == 2
  assert 'GENERATED SAMPLES' in done.stdout
  assert '\nEach row is a model. Look first at GLUE' in done.stdout
  commands = re.findall(r'^(?:Curves|This table.*):  (.*)$', done.stdout, re.M)
  assert [shlex.split(command)[1:] for command in commands] == [
    ['--logdir', str(folder)],
    ['table', str(folder)],
  ]
  for command in commands:  # as they stand, in the demo's own folder
    program = shlex.split(command)[0]
    assert shutil.which(program) or (checkout.CHECKOUT / program).exists()
  table = (folder / 'table.md').read_text()
  assert row in table and 'GENERATED SAMPLES' in table


def test_programs_are_named_so_that_they_are_found(monkeypatch, tmp_path):
  folder = tmp_path / '.venv' / 'bin'
  folder.mkdir(parents=True)
  program = folder / 'tensorboard'
  program.touch(mode=0o755)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'argv', [str(folder / 'synth-mtf')])
  monkeypatch.setenv('PATH', '/usr/bin')
  assert demo._as_typed('tensorboard') == '.venv/bin/tensorboard'  # noqa: SLF001
  monkeypatch.setenv('PATH', str(folder))
  assert demo._as_typed('tensorboard') == 'tensorboard'  # noqa: SLF001


def test_it_ends_with_a_page(killed):
  folder, done, _ = killed
  last = done.stdout.splitlines()[-1]
  assert last.endswith(f'in a browser:  {folder}/report.html')
  (model,) = Reader((folder / 'report.html').read_text()).models
  assert {*model['stacks']} == {'encoder', 'decoder', 'cross'}


def test_only_the_log_has_the_output_of_tensorflow(killed):
  folder, done, _ = killed
  assert done.stderr == ''
  for noise in ('INFO', 'tf_loss', 'warning', '\r'):
    assert noise not in done.stdout
  log = (folder / 'random' / 'pretrain' / 'log').read_text()
  assert 'step, tf_loss[' in log  # C++
  assert 'INFO:tensorflow' in log  # Python


def test_stages_leave_the_files_of_the_host_and_build_on_each_other(killed):
  folder = killed[0] / 'random'
  pretrained, started, ended = (
    tf.train.load_checkpoint(f'{folder}/{path}').get_tensor
    for path in (
      f'pretrain/model.ckpt-{STEPS}',
      'finetune/model.ckpt-52',
      f'finetune/model.ckpt-{STEPS + FINETUNE_STEPS}',
    )
  )
  frozen = 'shared/embedding'
  assert pretrained(frozen).tobytes() == ended(frozen).tobytes()
  trained = 'decoder/block_000/layer_000/SyntheticAttention/random/R'
  assert (started(trained) != ended(trained)).any()
  for stage in ('pretrain', 'finetune'):
    assert list((folder / stage).glob('events.out.tfevents.*'))
    assert (folder / stage / 'operative_config.gin').exists()
  predictions = folder / 'finetune' / 'validation_eval'
  assert (predictions / f'{TASK}_{STEPS + FINETUNE_STEPS}_predictions').exists()


def test_killed_it_resumes_from_its_checkpoint(killed):
  out, second, before = killed
  assert '] random: pretrain  done before' in second.stdout
  assert '] random: finetune  done before' not in second.stdout
  assert checkpoints(out / 'random' / 'pretrain') == before
  finetuned = out / 'random' / 'finetune'
  log = (finetuned / 'log').read_text()
  assert 'Restoring parameters from ' + str(finetuned) in log


def test_metrics_are_those_of_the_table(killed):
  out, *_ = killed
  (row,) = json.loads(run('table', out, '--format=json')[1])['models']
  assert row['label'] == 'Syn (R)'
  columns = {name.split(' (')[0]: c for name, c in row['numbers'].items()}
  measured = json.loads((out / 'metrics.json').read_text())['models']['random']
  (found,) = measured
  assert found['seed'] == 3
  assert 5 < found['log_perplexity'] < 12
  (cell,) = columns['CB accuracy']['runs']
  assert cell['standard_error'] == found['standard_errors'][f'{TASK}/accuracy']
  assert cell['n'] == found['n'][TASK] == 2
  for name, value in (
    ('CB F1', found['metrics'][f'{TASK}/mean_3class_f1']),
    ('CB accuracy', found['metrics'][f'{TASK}/accuracy']),
    ('Log ppl', found['log_perplexity']),
    ('Params', found['parameters']),
    ('Steps/s', found['steps_per_second']),
  ):
    (column,) = [c for n, c in columns.items() if n.startswith(name)]
    assert column['runs'][0]['value'] == pytest.approx(value)


def wait_for(condition, process, seconds=1500):
  deadline = time.monotonic() + seconds
  while time.monotonic() < deadline:
    if condition():
      return
    assert process.poll() is None, 'it ended too early'
    time.sleep(0.05)
  raise AssertionError('timed out')


@pytest.mark.parametrize(
  'words, message',
  [
    ('--variants vanila', "did you mean 'variants/vanilla.gin'"),
    ('--size tny', "did you mean 'sizes/tiny.gin'"),
    ('--data_dir /no/such', '/no/such'),
    ('--data_dir ~/no/such', os.path.expanduser('~/no/such')),
    ('--vocabulary /no.model', '/no.model'),
    ('--mixture synth_en_mx', "did you mean 'synth_en_mix'"),
    ('--gin_param Unitransformer.d_modl=3', "'d_modl'; did you mean 'd_model'"),
    (
      "--gin_param utils.run.sequence_length={'inputs':129,'targets':32}",
      'length 129 exceeds Random.max_length = 128',
    ),
    ('--out {file}/x/y', 'is not a folder'),
    ('--out ~/x', 'the shell replaces ~ only'),
    ('--out gs://bucket/x', 'expected a local folder'),
  ],
)
def test_bad_input_is_found_before_anything_is_written(
  words, message, tmp_path
):
  file = tmp_path / 'file'
  file.write_text('mine')
  words = words.replace('{file}', str(file)).split()
  out = tmp_path / 'run'
  status, _, err = run('demo', '--variants', 'random', '--out', out, *words)
  assert status == 2
  assert err.startswith('synth-mtf: error: ')
  assert message in err
  assert content(tmp_path) == {file: b'mine'}


def test_faults_of_the_data_are_found_before_anything_is_written(tmp_path):
  data = tmp_path / 'data'
  official_files.write_samples(data)
  sst = data / 'glue' / 'SST-2' / 'train.tsv'
  sst.write_text('sentence\tlabel\na warm film \t7\n')  # no class
  rte = data / 'glue' / 'RTE' / 'train.tsv'
  rte.write_text('index\tsentence1\n0\ta\n')
  out = tmp_path / 'run'
  status, _, err = run('demo', '--data_dir', data, '--out', out)
  assert status == 2
  assert 'no file corpus/' in err  # before TensorFlow is loaded
  official_files.write_text(data, 20)
  before = content(data)
  status, _, err = run('demo', '--data_dir', data, '--out', out)
  assert status == 2
  assert f'{sst}:2: ' in err and f'{rte}:' in err
  assert not out.exists()
  assert content(data) == before


def terminated(words, condition, seconds=0):
  """What a command says that is ended a while after a condition holds."""
  running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
  wait_for(condition, running)
  time.sleep(seconds)
  running.send_signal(signal.SIGTERM)
  assert running.wait(600) == 130
  said, _ = running.communicate()
  assert 'The same command resumes where it stopped' in said
  return said


def test_sigterm_saves_and_the_same_command_goes_on(killed, tmp_path):
  folder, out = killed[0], tmp_path / 'run'
  words = [PROGRAM, 'demo', '--data_dir', folder / 'data', '--mixture', TASK]
  words += ['--vocabulary', folder / 'vocabulary.model', '--out', out, *QUICK]
  words += ['--variants', 'random', '--steps', '100000']
  pretrained = out / 'random' / 'pretrain'
  terminated(words, lambda: [*pretrained.glob('model.ckpt-0.index')], 5)
  saved = [path.stem for path in pretrained.glob('model.ckpt-*.index')]
  assert len(saved) == 2
  assert not (out / 'random' / 'pretrain.done').exists()


def test_sigterm_while_the_page_is_made(killed):
  folder, done, _ = killed
  (folder / 'table.md').unlink()
  said = terminated(done.args, (folder / 'table.md').exists)
  assert 'Done in' not in said


@pytest.mark.parametrize(
  'given, made',
  [
    ('', None),
    ('bytes', 'bytes'),
    ('gs://bucket/data', 'gs://bucket/data'),
    ('~/data', os.path.expanduser('~/data')),
    ('data', os.path.abspath('data')),
  ],
)
def test_a_path_is_the_same_in_any_working_folder(given, made):
  assert demo.absolute(given) == made
