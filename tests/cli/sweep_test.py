"""The scripts in examples/."""

import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from tests import official_files
from tests.checkout import CHECKOUT
from tests.cli.command import PROGRAM

SWEEP = CHECKOUT / 'examples' / 'sweep.sh'
ARRAY = CHECKOUT / 'examples' / 'array.sh'
# DEVICE is split into words. XLA compiles no larger model in a short time.
DEVICES = (
  '--device=cpu --gin_param=num_layers=1 '
  "--gin_param=utils.run.sequence_length={'inputs':32,'targets':32}"
)


def small(tmp_path):
  """Returns the environment of short runs."""
  data = tmp_path / 'data'
  official_files.write_samples(data)
  official_files.write_text(data, 200)
  return {
    **os.environ,
    'BATCH': '2',
    'DATA': str(data),
    'FINETUNE_STEPS': '2',
    'MIXTURE': 'synth_glue_rte_v002',
    'OUT': str(tmp_path / 'sweep'),
    'PATH': f'{os.path.dirname(PROGRAM)}:{os.environ["PATH"]}',
    'PRETRAIN_STEPS': '2',
    'PYTHONHASHSEED': '0',
    'PYTHONPATH': str(CHECKOUT),
    'VOCABULARY': 'bytes',
  }


def program(folder, name, body):
  """Puts a program of this name into a folder."""
  path = folder / name
  path.write_text(f'#!/bin/sh\n{body}\n')
  path.chmod(0o755)


def saved(folder):
  """Returns the steps of the checkpoints in a folder."""
  return {int(re.findall(r'\d+', p.name)[0]) for p in folder.glob('*.index')}


def start(command, environment, cwd=CHECKOUT):
  """Starts a command where its document does."""
  return subprocess.Popen(
    command,
    cwd=cwd,
    env=environment,
    start_new_session=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def wait_for_training(process, folder):
  """Waits until a process has saved its first checkpoint."""
  deadline = time.monotonic() + 600
  while not saved(folder):
    if process.poll() is not None or time.monotonic() > deadline:
      process.kill()
      raise AssertionError(process.communicate()[0])
    time.sleep(0.1)


def documented(name):
  """Returns the command of docs/sweeps.md that begins with a name."""
  text = (CHECKOUT / 'docs' / 'sweeps.md').read_text(encoding='utf-8')
  (command,) = re.findall(rf'^\$ ({name} .*)$', text, re.M)
  return command


# Runs a copy of a script for each number of its array, at once.
SBATCH = """
set -e
copy=$(mktemp)
cp "$1" "$copy"
array=$(sed -n 's/^#SBATCH --array=//p' "$1")
for number in $(seq "${array%-*}" "${array#*-}"); do
  SLURM_ARRAY_TASK_ID=$number SLURM_JOB_ID=$number sh "$copy"
done
"""


def test_the_tasks_of_the_array_are_all_variants_and_seeds(tmp_path):
  bin_, examples = tmp_path / 'bin', tmp_path / 'examples'
  bin_.mkdir()
  program(bin_, 'sbatch', SBATCH)
  shutil.copytree(ARRAY.parent, examples)
  program(examples, 'run.sh', 'echo "$DEVICE $@" >> runs')
  subprocess.run(
    documented('sbatch'),
    shell=True,
    check=True,
    cwd=tmp_path,
    env={'PATH': f'{bin_}:{os.environ["PATH"]}'},
  )
  assert (tmp_path / 'runs').read_text().splitlines() == [
    f'--device=gpu base {variant} {seed}'
    for variant in ('vanilla', 'random', 'random_vanilla')
    for seed in range(3)
  ]
  options = re.findall('^#SBATCH (.*)', ARRAY.read_text(), re.M)
  # The shell gets the signal, and its task may be queued again.
  assert {'--signal=B:TERM@120', '--requeue'} <= {*options}


@pytest.mark.slow  # trains
@pytest.mark.xla
def test_slurm_stops_a_task_of_the_array_and_queues_it_again(tmp_path):
  """SLURM signals the shell of a copy of the script, and nothing else."""
  bin_, out = tmp_path / 'bin', tmp_path / 'queued'
  bin_.mkdir()
  program(bin_, 'scontrol', f'echo "$@" >> {out}')
  script = shutil.copy(ARRAY, tmp_path / 'slurm_script')
  environment = small(tmp_path)
  environment |= {
    'DEVICE': DEVICES,
    'PATH': f'{bin_}:{environment["PATH"]}',
    'PRETRAIN_STEPS': '1000000',
    'SIZE': 'tiny',
    'SLURM_ARRAY_TASK_ID': '4',
    'SLURM_JOB_ID': '77',
    'XLA_FLAGS': '--xla_force_host_platform_device_count=2',
  }
  folder = tmp_path / 'sweep' / 'tiny' / 'random' / 'seed_1'

  process = start([script], environment)
  wait_for_training(process, folder / 'pretrain')
  process.send_signal(signal.SIGTERM)
  output, _ = process.communicate(timeout=600)
  assert process.returncode == 143, output
  assert 'Mesh: batch:2, all devices' in output
  step = max(saved(folder / 'pretrain'))
  assert step > 0 and f'Stopped. model.ckpt-{step} is saved' in output
  assert out.read_text() == 'requeue 77\n'

  environment['PRETRAIN_STEPS'] = str(step + 2)
  process = start([script], environment)
  output, _ = process.communicate(timeout=1500)
  assert process.returncode == 0, output
  restored = f'Restoring parameters from {folder}/pretrain/model.ckpt-{step}\n'
  assert restored in (folder / 'pretrain' / 'log').read_text()
  assert max(saved(folder / 'pretrain')) == step + 2
  assert max(saved(folder / 'finetune')) == step + 4
  assert (folder / 'finished').exists()
  assert out.read_text() == 'requeue 77\n'


@pytest.mark.slow  # trains
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_loop_after_a_checkpoint(tmp_path, number):
  """SIGTERM reaches the outermost shell; Ctrl-C, the whole group."""
  environment = {**small(tmp_path), 'PRETRAIN_STEPS': '1000000'}
  environment |= {'SEEDS': '0', 'VARIANTS': 'random'}
  folder = tmp_path / 'sweep' / 'tiny' / 'random' / 'seed_0' / 'pretrain'
  process = start([SWEEP], environment)
  wait_for_training(process, folder)
  if number == signal.SIGINT:
    os.killpg(process.pid, number)
  else:
    process.send_signal(number)
  output, _ = process.communicate(timeout=600)
  assert process.returncode == 143, output
  assert f'Stopped. model.ckpt-{max(saved(folder))} is saved' in output
  assert 'Ended at once' not in output


@pytest.mark.slow  # trains
def test_a_killed_sweep_continues_and_ends_with_one_table(tmp_path, programs):
  environment = {**small(tmp_path), 'SEEDS': '0 1', 'VARIANTS': 'random'}
  environment['PATH'] = f'{programs}:{environment["PATH"]}'
  runs = tmp_path / 'sweep' / 'tiny' / 'random'
  first = runs / 'seed_0' / 'finished'
  with subprocess.Popen(
    [SWEEP], env=environment, start_new_session=True, stdout=subprocess.DEVNULL
  ) as process:
    deadline = time.monotonic() + 1500
    while not first.exists() and process.poll() is None:
      assert time.monotonic() < deadline
      time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
  before = {path: path.stat().st_mtime_ns for path in first.parent.rglob('*')}

  output = subprocess.run(
    [SWEEP], env=environment, check=True, capture_output=True, text=True
  ).stdout

  assert (runs / 'seed_1' / 'finished').exists()
  assert {p: p.stat().st_mtime_ns for p in first.parent.rglob('*')} == before
  assert re.search(r'^\| Syn \(R\) +\| +\d+\.\d', output, re.M)
  assert 'over 2 runs' in output
