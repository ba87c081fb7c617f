"""`synth-mtf transformer --device=gpu` on a machine with a made-up GPU."""

import importlib.metadata
import os
import pathlib
import re
import shlex
import shutil
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


def commands():
  """The commands of docs/scaling.md that train on a GPU."""
  text = (CHECKOUT / 'docs' / 'scaling.md').read_text(encoding='utf-8')
  for block in readme_test.BLOCK.finditer(text):
    if pathlib.Path(__file__).name in (block['text'] or ''):
      for line in block['body'].replace('\\\n', ' ').split('\n$ '):
        words = shlex.split(line.removeprefix('$ '))
        if 'transformer' in line:
          # The image runs `synth-mtf` with the words behind its name.
          _, image, behind = line.partition(' synth_mtf:gpu ')
          yield ['synth-mtf', *shlex.split(behind)] if image else words


@pytest.mark.parametrize('words', commands(), ids=lambda words: words[0])
def test_the_documents_command(words, packages, tmp_path):
  data = official_files.write_text(tmp_path / 'my_data')
  vocabulary = tmp_path / 'my_vocabulary.model'
  sentencepieces.train(vocabulary, data / 'corpus/text.txt')
  _, *words = words
  done = subprocess.run(
    [
      sys.executable,
      '-c',
      MAIN,
      *words,
      *(f'--gin_param={each}' for each in SMALL),
    ],
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': f'{CHECKOUT}:{packages}'},
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  (folder,) = (w.partition('=')[2] for w in words if 'model_dir' in w)
  assert '--device=gpu' in words
  assert_trained(done, tmp_path / folder, 1)


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
