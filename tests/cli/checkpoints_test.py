"""The commands of docs/checkpoints.md, on a small run."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from synth_mtf.results import records
from tests import official_files
from tests.cli import command

pytestmark = pytest.mark.slow  # trains

PATIENCE = 1500
TASK = 'synth_glue_rte_v002'
SMALL = (
  '--vocabulary=bytes',
  '--gin_file=sizes/tiny.gin',
  '--gin_file=variants/random.gin',
)
BINDINGS = (
  f"--gin_param=MIXTURE_NAME = '{TASK}'",
  '--gin_param=num_layers = 1',
  "--gin_param=utils.run.sequence_length = {'inputs': 64, 'targets': 32}",
  '--gin_param=utils.run.batch_size = 4',
)


@pytest.fixture
def main(tmp_path, programs):
  """Starts `synth-mtf transformer` with a run file and bindings."""
  data = tmp_path / 'data'
  official_files.write_samples(data)
  processes: list[subprocess.Popen[bytes]] = []
  forked = programs / 'synth-mtf'

  def start(run, *bindings):
    process = subprocess.Popen(
      [
        forked if processes else command.PROGRAM,
        'transformer',
        f'--data_dir={data}',
        f'--model_dir={tmp_path / "run"}',
        *SMALL,
        f'--gin_file=runs/{run}.gin',
        '--gin_file=runs/cpu.gin',
        *BINDINGS,
        *(f'--gin_param={binding}' for binding in bindings),
      ],
      stdout=subprocess.DEVNULL,
    )
    processes.append(process)
    return process

  yield start
  for process in processes:
    process.kill()
    process.wait()


def train(main, steps):
  return main(
    'finetune_en_mix',
    'utils.run.init_checkpoint = None',
    f'utils.run.train_steps = {steps}',
    'utils.run.save_checkpoints_steps = 2',
    'synth_mtf.train_with_progress.save_seconds = 1e9',
  )


def evaluated(folder):
  """The steps in metrics.json."""
  if not (folder / 'validation_eval' / 'metrics.json').exists():
    return set()
  results = records.read(str(folder / 'validation_eval'))
  return {result.step for result, _ in results}


def test_checkpoints_are_evaluated_while_they_come(main, tmp_path):
  folder = tmp_path / 'run'
  assert train(main, 2).wait(timeout=PATIENCE) == 0
  evaluation = main('eval_en_mix', 'eval_checkpoint_step = None')
  training = None
  deadline = time.monotonic() + PATIENCE
  while 4 not in evaluated(folder):
    assert time.monotonic() < deadline
    if training is None and evaluated(folder):
      training = train(main, 4)
    time.sleep(0.2)
  assert training is not None
  assert training.wait(timeout=PATIENCE) == 0
  assert evaluated(folder) == {2, 4}
  evaluation.send_signal(signal.SIGINT)
  evaluation.wait(timeout=PATIENCE)

  # Only the last and the best stay; the first one is the best of equal ones.
  assert train(main, 6).wait(timeout=PATIENCE) == 0
  metrics = folder / 'validation_eval' / 'metrics.json'
  content = json.loads(metrics.read_text())
  for result in content['results']:
    result['value'] = {2: 50.0, 4: 75.0}[result['step']]
  metrics.write_text(json.dumps(content))
  checkpoints = {'model.ckpt-0', 'model.ckpt-2', 'model.ckpt-4', 'model.ckpt-6'}
  assert kept(folder) == checkpoints
  words = 'checkpoint', 'keep', folder, '--best=GLUE RTE'
  status, out, _ = command.run(*words, '--dry_run')
  assert (status, kept(folder)) == (0, checkpoints)
  assert 'keep    model.ckpt-4 (best GLUE RTE)\n' in out
  assert 'remove  model.ckpt-2\n' in out
  assert command.run(*words)[0] == 0
  assert kept(folder) == {'model.ckpt-4', 'model.ckpt-6'}
  assert evaluated(folder) == {2, 4}

  # Nothing is removed if the best is gone, or no column has the name.
  content['results'][0]['value'] = 90.0
  metrics.write_text(json.dumps(content))
  for column, fault in (
    ('GLUE RTE', 'model.ckpt-2 is the best'),
    (f'{TASK}/accuracy', 'no evaluated checkpoint'),
  ):
    status, _, error = command.run(
      'checkpoint', 'keep', folder, f'--best={column}'
    )
    assert status == 2
    assert fault in error
  assert kept(folder) == {'model.ckpt-4', 'model.ckpt-6'}

  # The run resumes from what is left.
  assert train(main, 8).wait(timeout=PATIENCE) == 0
  assert kept(folder) == {'model.ckpt-4', 'model.ckpt-6', 'model.ckpt-8'}


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('model.ckpt-3', 'model.ckpt-3 is not a folder: give a model folder'),
    ('s4://nobody/run', "cannot be read: .*scheme 's4' not implemented"),
    ('empty', 'empty holds no checkpoint'),
  ],
)
def test_where_nothing_can_be_kept(tmp_path, monkeypatch, name, message):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'model.ckpt-3.index').touch()
  (tmp_path / 'empty').mkdir()
  status, _, error = command.run('checkpoint', 'keep', name)
  assert status == 2 and re.search(message, error), error


def kept(folder):
  return {
    name.removesuffix('.index')
    for name in os.listdir(folder)
    if name.endswith('.index')
  }
