"""`synth-mtf demo`: very short runs of the real command.

The tests share a run with default data. Other runs train on its data.
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from synth_mtf import cli
from tests import official_files

pytestmark = pytest.mark.slow  # trains

COMMAND = str(pathlib.Path(sys.executable).parent / 'synth-mtf')
TASK = 'synth_super_glue_cb_v102'
STEPS = 4
SMALL = (
  *('--gin_param', 'num_layers = 1'),
  *('--gin_param', 'utils.run.batch_size = 4'),
)
QUICK = ('--steps', str(STEPS), '--eval_examples', '2', *SMALL)


def demo(*words, **kwargs):
  return subprocess.run(
    [COMMAND, 'demo', *words], capture_output=True, text=True, **kwargs
  )


def content(folder):
  return {
    path: path.read_bytes()
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }


def checkpoints(folder):
  return {
    path.name: path.stat().st_mtime_ns for path in folder.glob('model.ckpt-*')
  }


@pytest.fixture(scope='module')
def first(tmp_path_factory):
  """A run with default data: its folder and its output."""
  folder = tmp_path_factory.mktemp('demo') / 'run'
  done = demo('--out', str(folder), '--variants', 'random', *QUICK)
  assert done.returncode == 0, done.stderr
  return folder, done


@pytest.fixture(scope='module')
def ready(first):
  """Flags of a short run on one task, with existing data."""
  folder, _ = first
  return (
    '--data_dir', str(folder / 'data'),
    '--vocabulary', str(folder / 'vocabulary.model'),
    '--mixture', TASK,
    '--variants', 'random',
    *QUICK,
  )  # fmt: skip


def test_it_prints_the_table_and_where_everything_is(first):
  folder, done = first
  (header, rule, row, examples) = [
    line for line in done.stdout.splitlines() if line.startswith('|')
  ]
  columns = [cell.strip() for cell in header.strip('|').split('|')]
  assert len(columns) == 23
  assert columns[:3] + columns[-2:] == [
    *('Model', 'GLUE', 'CoLA', 'Steps/s', 'Params')
  ]
  assert row.startswith('| Syn (R) |')
  found = [cell.strip() for cell in examples.strip('|').split('|')]
  assert found[0] == 'n'
  assert found.count('2') + found.count('2/2') == 17
  assert 'GENERATED SAMPLES' in done.stdout
  assert f'tensorboard --logdir {folder}' in done.stdout
  table = (folder / 'table.md').read_text()
  assert row in table and 'GENERATED SAMPLES' in table


def test_it_ends_with_a_page_that_agrees_with_its_table(first):
  folder, done = first
  last = done.stdout.splitlines()[-1]
  assert last.endswith(f'in a browser:  {folder}/report.html')
  made = (folder / 'report.html').read_text(encoding='utf-8')
  (table,) = re.findall(r'<h2 id="tables">.*?</section>', made, re.S)
  found = [
    re.sub('<.*?>', '', cell)
    for cell in re.findall(r'<t[hd][ >].*?</t[hd]>', table, re.S)
  ]
  expected = [
    cell.strip().replace('**', '')
    for line in (folder / 'table.md').read_text().splitlines()
    if re.match(r'\| *\w', line)
    for cell in line.strip('|').split('|')
  ]
  assert found == expected
  (models,) = re.findall(r'id="models">(.*?)</script>', made, re.S)
  assert {*json.loads(models)[0]['stacks']} == {'encoder', 'decoder', 'cross'}
  assert 'No attention' not in made


def test_only_the_log_has_the_output_of_tensorflow(first):
  folder, done = first
  assert done.stderr == ''
  for noise in ('INFO', 'tf_loss', 'warning', '\r'):
    assert noise not in done.stdout
  log = (folder / 'random' / 'pretrain' / 'log').read_text()
  assert 'step, tf_loss[' in log  # C++
  assert 'INFO:tensorflow' in log  # Python


def test_every_number_is_in_the_json(first):
  folder, _ = first
  results = json.loads((folder / 'metrics.json').read_text())
  assert results['configuration']['finetune_steps'] == STEPS
  (row,) = results['models']['random']
  assert 5 < row['log_perplexity'] < 12
  assert row['steps_per_second'] > 0
  assert len(row['metrics']) == 25
  assert row['n'][TASK] == 2


def test_stages_leave_the_files_of_the_host_and_build_on_each_other(first):
  import tensorflow.compat.v1 as tf

  folder = first[0] / 'random'
  pretrained = tf.train.load_checkpoint(
    str(folder / 'pretrain' / f'model.ckpt-{STEPS}')
  )
  started, ended = (
    tf.train.load_checkpoint(str(folder / 'finetune' / f'model.ckpt-{step}'))
    for step in (2 * STEPS - 1, 2 * STEPS)
  )
  names = set(ended.get_variable_to_shape_map())
  assert (
    pretrained.get_tensor('shared/embedding').tobytes()
    == ended.get_tensor('shared/embedding').tobytes()
  )
  trained = 'decoder/block_000/layer_000/SyntheticAttention/random/R'
  assert trained in names
  assert (started.get_tensor(trained) != ended.get_tensor(trained)).any()
  assert 'shared/embedding_slot_vr' not in names
  for stage in ('pretrain', 'finetune'):
    assert list((folder / stage).glob('events.out.tfevents.*'))
    assert (folder / stage / 'operative_config.gin').exists()
  predictions = folder / 'finetune' / 'validation_eval'
  assert (predictions / f'{TASK}_{2 * STEPS}_predictions').exists()


def test_a_second_run_repeats_nothing(first):
  folder, _ = first
  before = content(folder / 'random')
  again = demo('--out', str(folder), '--variants', 'random', *QUICK)
  assert again.returncode == 0
  assert again.stdout.count('done before') == 4
  assert content(folder / 'random') == before
  other = demo('--out', str(folder), '--steps', '5')
  assert other.returncode == 2
  assert 'a demo of another configuration' in other.stderr
  assert content(folder / 'random') == before


@pytest.fixture(scope='module')
def killed(ready, tmp_path_factory):
  """A run of two seeds after kill -9, in the middle of the first finetuning.

  The result of the same command, the folder, and the pretrained checkpoints.
  """
  out = tmp_path_factory.mktemp('killed') / 'run'
  words = [COMMAND, 'demo', *ready, '--out', str(out), '--seeds', '0', '1']
  words += ['--pretrain_steps', '2', '--finetune_steps', '60']
  first = subprocess.Popen(words, stdout=subprocess.DEVNULL)
  finetuned = out / 'random' / 'seed_0' / 'finetune'
  wait_for(lambda: list(finetuned.glob('model.ckpt-14.index')), first)
  first.send_signal(signal.SIGKILL)
  first.wait()
  before = checkpoints(out / 'random' / 'seed_0' / 'pretrain')
  second = subprocess.run(words, capture_output=True, text=True)
  assert second.returncode == 0, second.stderr
  return second, out, before


def test_killed_it_resumes_from_its_checkpoint(killed):
  second, out, before = killed
  assert '] random/seed_0: pretrain  done before' in second.stdout
  assert '] random/seed_0: finetune  done before' not in second.stdout
  first_seed = out / 'random' / 'seed_0'
  assert checkpoints(first_seed / 'pretrain') == before
  finetuned = first_seed / 'finetune'
  log = (finetuned / 'log').read_text()
  assert 'Restoring parameters from ' + str(finetuned) in log
  assert (finetuned / 'model.ckpt-62.index').exists()


def test_metrics_are_those_of_the_table(killed, capsys):
  _, out, _ = killed
  capsys.readouterr()
  assert cli.main(['table', str(out), '--format=json']) == 0
  (row,) = json.loads(capsys.readouterr().out)['models']
  assert row['label'] == 'Syn (R)'
  columns = {name.split(' (')[0]: c for name, c in row['numbers'].items()}
  measured = json.loads((out / 'metrics.json').read_text())['models']['random']
  assert [found['seed'] for found in measured] == [0, 1]
  for number, found in enumerate(measured):
    for name, metric in (
      ('CB F1', f'{TASK}/mean_3class_f1'),
      ('CB accuracy', f'{TASK}/accuracy'),
    ):
      cell = columns[name]['runs'][number]
      assert cell['value'] == found['metrics'][metric]
      assert cell['standard_error'] == found['standard_errors'][metric]
      assert cell['n'] == found['n'][TASK] == 2
    for name, key in (
      ('Log ppl', 'log_perplexity'),
      ('Params', 'parameters'),
      ('Steps/s', 'steps_per_second'),
    ):
      (column,) = [c for n, c in columns.items() if n.startswith(name)]
      assert column['runs'][number]['value'] == pytest.approx(found[key])


def wait_for(condition, process, seconds=300):
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
    ('--gin_file heads/9.gin', "gin file 'heads/9.gin' does not exist"),
    ('--data_dir /no/such', '/no/such'),
    ('--vocabulary /no.model', '/no.model'),
    ('--init_checkpoint /no/model.ckpt-3', 'no checkpoint /no/model.ckpt-3'),
    ('--mixture synth_en_mx', "did you mean 'synth_en_mix'"),
    ('--gin_param Unitransformer.d_modl=3', "'d_modl'; did you mean 'd_model'"),
    ('--gin_param SyntheticAttention.mixng=3', "did you mean 'mixing'"),
    ('--gin_param d_model', 'gin syntax'),
    (
      "--gin_param utils.run.sequence_length={'inputs':129,'targets':32}",
      'length 129 exceeds max_length 128 of the Random table',
    ),
    ('--out {file}', 'in a folder that you may write to'),
    ('--out {file}/x/y', 'in a folder that you may write to'),
  ],
)
def test_bad_input_is_found_before_anything_is_written(
  words, message, tmp_path, capsys
):
  file = tmp_path / 'file'
  file.write_text('mine')
  words = ['--variants', 'random', '--out', str(tmp_path / 'run')] + [
    word.replace('{file}', str(file)) for word in words.split()
  ]
  assert cli.main(['demo', *words]) == 2
  error = capsys.readouterr().err
  assert error.startswith('synth-mtf: error: ')
  assert message in error
  assert 'Traceback' not in error
  assert content(tmp_path) == {file: b'mine'}


@pytest.mark.parametrize(
  'words, expected',
  [
    ('--steps 0', '1 or more'),
    ('--finetune_steps 0', '1 or more'),
    ('--eval_examples 0', '1 or more'),
    ('--eval_examples some', '1 or more'),
    ('--pretrain_steps -1', '0 or more'),
    ('--seeds 0 -1', '0 or more'),
  ],
)
def test_bad_numbers(words, expected, capsys):
  with pytest.raises(SystemExit):
    cli.main(['demo', *words.split()])
  assert expected in capsys.readouterr().err


def test_all_faults_of_the_data_are_reported_before_anything_is_written(
  tmp_path, capsys
):
  data = tmp_path / 'data'
  official_files.write_samples(data)
  (data / 'glue' / 'CoLA' / 'dev.tsv').unlink()
  sst = data / 'glue' / 'SST-2' / 'train.tsv'
  lines = sst.read_text().splitlines()
  lines[4] = lines[4].rsplit('\t', 1)[0] + '\t7'  # no class
  sst.write_text('\n'.join(lines) + '\n')
  (data / 'superglue' / 'COPA' / 'val.jsonl').write_text('')
  before = content(data)
  out = tmp_path / 'run'
  words = ['demo', '--data_dir', str(data), '--out', str(out)]
  assert cli.main(words) == 2
  error = capsys.readouterr().err
  assert 'no file glue/CoLA/dev.tsv' in error
  assert f'{sst}:5: ' in error
  assert 'no rows in' in error
  assert 'COPA/val.jsonl' in error
  assert 'corpus/' in error
  assert not out.exists()
  assert content(data) == before


def test_sigterm_saves_and_the_same_command_goes_on(ready, tmp_path):
  out = tmp_path / 'run'
  words = [COMMAND, 'demo', *ready, '--out', str(out), '--steps', '100000']
  running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
  pretrained = out / 'random' / 'pretrain'
  wait_for(lambda: list(pretrained.glob('model.ckpt-0.index')), running)
  time.sleep(5)
  running.send_signal(signal.SIGTERM)
  assert running.wait(120) == 130
  said, _ = running.communicate()
  assert 'The same command resumes where it stopped' in said
  saved = [path.stem for path in pretrained.glob('model.ckpt-*.index')]
  assert len(saved) == 2
  assert not (out / 'random' / 'pretrain.done').exists()
