"""`synth-mtf transformer --device=gpu` on a machine with a made-up GPU."""

import importlib.metadata
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from synth_mtf.host import events
from tests import official_files, readme_test, sentencepieces
from tests.cli import t5_main
from tests.conftest import CHECKOUT
from tests.host import made_packages
from tests.pjrt import made_up_gpu
from tests.run.process_test import MAIN, as_command

pytestmark = [pytest.mark.slow, pytest.mark.xla]  # processes that train

SMALL = (
  *('d_ff = 20', 'd_kv = 8', 'd_model = 24', 'num_heads = 3', 'num_layers = 1'),
  "utils.run.sequence_length = {'inputs': 32, 'targets': 32}",
  'utils.run.batch_size = 2',
  'utils.run.train_steps = 1',
)
PACKAGE = 'jax-cuda12-plugin'


@pytest.fixture
def packages(tmp_path):
  """A folder with the plugin, for PYTHONPATH."""
  folder = tmp_path / 'packages'
  plugins = folder / 'jax_plugins'
  plugins.mkdir(parents=True)
  shutil.copy(pathlib.Path(made_up_gpu.__file__), plugins / 'made_up_gpu.py')
  return folder


@pytest.fixture
def run(tmp_path):
  """Runs the command in a process that finds these packages."""
  data = official_files.write_text(tmp_path / 'data')

  def command(packages, *more, **variables):
    paths = CHECKOUT, packages, os.environ.get('PYTHONPATH', '')
    return as_command(
      tmp_path,
      MAIN,
      'transformer',
      f'--model_dir={tmp_path / "run"}',
      f'--data_dir={data}',
      '--vocabulary=bytes',
      *t5_main.REPEATABLE,
      '--gin_param=utils.run.batch_size = 2',
      '--gin_param=utils.run.train_steps = 3',
      *more,
      PYTHONPATH=':'.join(map(str, paths)),
      PYTHONHASHSEED='0',
      XLA_FLAGS=os.environ['XLA_FLAGS'],
      **variables,
    )

  return command


def assert_trained(done, folder, *steps):
  assert done.returncode == 0, done.stderr[-3000:]
  assert 'Mesh: batch:1, all devices' in done.stderr
  assert (folder / f'model.ckpt-{steps[-1]}.index').exists()
  losses = events.read(str(folder))['loss']
  assert {*steps} <= losses.keys()
  assert np.isfinite(list(losses.values())).all()


def test_a_gin_file_in_place_of_the_flag(run, packages, tmp_path):
  done = run(packages, '--gin_file=runs/devices.gin', t5_main.NO_MESH)
  assert_trained(done, tmp_path / 'run', 1, 3)


def commands(document, *, of_hosts=False):
  """The commands of a document that train on a GPU, or on those of hosts."""
  text = (CHECKOUT / 'docs' / document).read_text(encoding='utf-8')
  for block in readme_test.BLOCK.finditer(text):
    if pathlib.Path(__file__).name in (block['text'] or ''):
      for line in block['body'].replace('\\\n', ' ').split('\n$ '):
        _, *words = shlex.split(line.removeprefix('$ '))
        is_of_hosts = '--num_processes' in line
        if '--device=gpu' in words and is_of_hosts == of_hosts:
          # The image runs `synth-mtf` with the words behind its name.
          _, image, behind = line.partition(' synth_mtf:gpu ')
          yield shlex.split(behind) if image else words


@pytest.fixture
def start(packages, tmp_path):
  """Starts a command where a reader has a text, data and a vocabulary."""
  data = official_files.write_text(tmp_path / 'my_data')
  text = tmp_path / 'text.txt'
  shutil.copy(data / 'corpus' / 'text.txt', text)
  sentencepieces.train(tmp_path / 'my_vocabulary.model', text)

  def command(words, *more):
    words = [*words, *more, *(f'--gin_param={each}' for each in SMALL)]
    return subprocess.Popen(
      [sys.executable, '-c', MAIN, *words],
      cwd=tmp_path,
      env={
        **os.environ,
        'PYTHONHASHSEED': '0',
        'PYTHONPATH': f'{CHECKOUT}:{packages}',
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  return command


def ended(process):
  """Waits for a process."""
  output, errors = process.communicate(timeout=600)
  return subprocess.CompletedProcess([], process.returncode, output, errors)


@pytest.mark.parametrize('words', commands('scaling.md'))
def test_the_documents_command(words, start, tmp_path):
  (folder,) = (w.partition('=')[2] for w in words if 'model_dir' in w)
  assert_trained(ended(start(words)), tmp_path / folder, 1)


def test_the_documents_short_command(start, tmp_path):
  ((name, folder, *words),) = commands('questions.md')
  vocabulary = '--vocabulary=my_vocabulary.model'
  done = ended(start([name, folder, *words], vocabulary, '--steps=1'))
  assert_trained(done, tmp_path / folder, 1)


def test_the_documents_command_on_two_hosts(start, tmp_path):
  (words,) = commands('scaling.md', of_hosts=True)
  with socket.socket() as listening:
    listening.bind(('127.0.0.1', 0))
    port = listening.getsockname()[1]
  given = shlex.join(words).replace('=host0:8476', f'=localhost:{port}')
  processes = [
    start(shlex.split(given.replace('_id=0', f'_id={number}')))
    for number in range(2)
  ]
  for done in map(ended, processes):
    assert done.returncode == 0, done.stderr[-3000:]
    assert 'Mesh: batch:2, all devices' in done.stderr
  assert (tmp_path / 'my_drive/two/model.ckpt-1.index').exists()


def test_its_step_is_counted(packages, tmp_path):
  """JAX then finds no CPU."""
  done = as_command(
    tmp_path,
    MAIN,
    *('cost', '--device=gpu', '--size=tiny', '--variants=random'),
    *('--inputs=16', '--targets=8', '--batch_size=8'),
    '--gin_param=num_layers = 1',
    PYTHONPATH=f'{CHECKOUT}:{packages}',
    XLA_FLAGS=os.environ['XLA_FLAGS'],
  )
  assert done.returncode == 0, done.stderr
  title, _, row = done.stdout.splitlines()
  assert 'on gpu (batch:1' in title
  assert re.fullmatch(r'random +\d\.\d( +\d\.\d\d){4} +\? +yes', row)


def test_without_a_plugin(run, tmp_path):
  done = run(tmp_path, '--device=gpu')
  assert done.returncode == 2
  assert f'--device=gpu: JAX {jax.__version__} finds none' in done.stderr
  command = f'pip install "jax[cuda12]=={jax.__version__}"'
  assert f'GPUs is not installed: {command}\n' in done.stderr
  assert 'JAX_PLATFORMS' not in done.stderr
  assert not (tmp_path / 'run').exists()


def test_a_gpu_that_the_plugin_does_not_reach(run, packages):
  """What is installed already is no advice."""
  made_packages.describe(
    packages, PACKAGE, importlib.metadata.version('jaxlib')
  )
  fault = 'no supported devices found for platform CUDA'
  done = run(packages, '--device=gpu', MADE_UP_FAULT=fault)
  assert done.returncode == 2
  assert fault in done.stderr
  assert 'Check that `nvidia-smi` lists the GPU' in done.stderr
  assert 'pip install' not in done.stderr
