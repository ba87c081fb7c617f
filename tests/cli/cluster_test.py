"""Two processes train together, one is killed, and nothing is lost."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import time

import numpy as np
import pytest

from synth_mtf.checkpoints.files import Checkpoint
from tests import official_files
from tests.cli import t5_main
from tests.cli.command import PROGRAM

pytestmark = pytest.mark.slow  # starts processes

RUN = (
  '--vocabulary=bytes',
  *t5_main.REPEATABLE,
  '--gin_param=dropout_rate = 0.0',  # its seeds differ from mesh to mesh
  '--gin_param=utils.run.batch_size = 4',
  '--gin_param=utils.run.iterations_per_loop = 10',
  '--gin_param=utils.run.save_checkpoints_steps = 10',
)
TWO = (
  "--gin_param=utils.run.mesh_shape = 'batch:2'",
  "--gin_param=utils.run.mesh_devices = ['/job:worker/task:0/device:CPU:0', "
  "'/job:worker/task:1/device:CPU:0']",
)
PATIENCE = 1500


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory) -> pathlib.Path:
  return official_files.write_text(tmp_path_factory.mktemp('data'), 800)


@contextlib.contextmanager
def cluster(*words, train_steps):
  """Yields tasks 0 and 1; what is left of them is killed."""
  with socket.socket() as one, socket.socket() as other:
    for free in (one, other):
      free.bind(('localhost', 0))
    hosts = [f'localhost:{s.getsockname()[1]}' for s in (one, other)]
  words += *TWO, f'--gin_param=utils.run.train_steps = {train_steps}'
  with contextlib.ExitStack() as stack:
    tasks = []
    for number in (0, 1):
      task = [f'--hosts={",".join(hosts)}', f'--task={number}', '--', *words]
      process = subprocess.Popen(
        [PROGRAM, 'cluster', *task],
        env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''},
        stdout=subprocess.DEVNULL if number else subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
      tasks.append(stack.enter_context(process))
      stack.callback(process.kill)
    yield tasks


def checkpoint(folder, main, beyond):
  """Waits for a checkpoint beyond a step, and returns the last one's step."""
  end = time.monotonic() + PATIENCE
  while True:
    found = folder.glob('model.ckpt-*.index')
    last = max((int(p.stem.rpartition('-')[2]) for p in found), default=-1)
    if last > beyond:
      return last
    assert main.poll() is None, main.communicate()[0][-3000:]
    assert time.monotonic() < end
    time.sleep(0.1)


def test_a_lost_worker_ends_the_run_which_then_resumes(data_dir, tmp_path):
  folder = tmp_path / 'run'
  words = (f'--model_dir={folder}', f'--data_dir={data_dir}', *RUN)
  with cluster(*words, train_steps=100_000) as (main, worker):
    checkpoint(folder, main, 0)
    worker.kill()
    out, _ = main.communicate(timeout=PATIENCE)
    assert main.returncode == 2
    assert re.search(r'`ss -ltn` lists it as \*:\d+\.', out), out
  last = checkpoint(folder, main, 0)
  lost = r'synth-mtf: error: task 1 \(localhost:\d+\) does not answer'
  assert re.search(lost, out), out

  with cluster(*words, train_steps=last + 10) as (main, worker):
    out, _ = main.communicate(timeout=PATIENCE)
    assert main.returncode == 0, out[-3000:]
    log = (folder / 'log').read_text()
    assert f'Restoring parameters from {folder}/model.ckpt-{last}\n' in log
    assert worker.wait(PATIENCE) == 0, 'a worker ends with the run'

  alone = tmp_path / 'alone'
  steps = f'--gin_param=utils.run.train_steps = {last + 10}'
  t5_main.synth_mtf_transformer(*words, f'--model_dir={alone}', steps)
  resumed, straight = (
    Checkpoint(f'{path}/model.ckpt-{last + 10}') for path in (folder, alone)
  )
  start = Checkpoint(f'{alone}/model.ckpt-0')
  assert resumed.variables == straight.variables
  for name in straight.variables:
    moved = straight[name] != start[name]
    # Adafactor turns a gradient that is nothing but rounding error into a whole
    # step, and two devices round differently from one.
    close = np.isclose(resumed[name], straight[name], 1e-3, 1e-4)[moved]
    assert not moved.any() or close.mean() > 0.9, name


@pytest.mark.parametrize('train_steps', [0, 100_000])
def test_a_worker_ends_with_an_error_when_task_0_does(
  data_dir, tmp_path, train_steps
):
  folder = tmp_path / 'run'
  words = [f'--model_dir={folder}', f'--data_dir={data_dir}', *RUN]
  with cluster(*words, train_steps=train_steps) as (main, worker):
    if train_steps:  # otherwise task 0 refuses the run
      checkpoint(folder, main, -1)
      main.kill()
    assert main.wait(PATIENCE)
    assert worker.wait(PATIENCE) == 2
