"""T5's own command on JAX's devices, chosen in gin."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.results import records
from tests import official_files
from tests.cli import t5_main

DEVICES = (
  '--gin_file=runs/devices.gin',
  "--gin_param=synth_mtf.run_on_devices.kind = 'cpu'",
)


@pytest.fixture(scope='module')
def words(tmp_path_factory):
  """Makes the command line of a run with dropout."""
  data = official_files.write_text(tmp_path_factory.mktemp('data'))

  def make(model_dir, *more, steps):
    return [
      f'--model_dir={model_dir}',
      f'--data_dir={data}',
      '--vocabulary=bytes',
      *t5_main.REPEATABLE,
      '--gin_param=dropout_rate = 0.1',
      '--gin_param=utils.run.batch_size = 2',
      f'--gin_param=utils.run.train_steps = {steps}',
      *more,
    ]

  return make


@pytest.fixture(scope='module')
def stock(tmp_path_factory):
  with t5_main.t5_mesh_transformer(tmp_path_factory.mktemp('log')) as command:
    yield command


def evaluate(command, words, folder, *more):
  """Returns the perplexity on one batch, and where it is written."""
  command(
    *words(
      folder,
      '--gin_file=runs/perplexity_text.gin',
      '--gin_file=runs/cpu.gin',
      '--gin_param=mesh_eval_dataset_fn.seed = 3',
      '--gin_param=utils.run.perplexity_eval_steps = 1',
      '--gin_param=utils.run.eval_checkpoint_step = -1',
      *more,
      steps=8,
    )
  )
  (path,) = folder.glob('*/metrics.json')
  found = {each.metric: each.value for each, _ in records.read(path.parent)}
  path.unlink()
  return found['neg_log_perplexity']


@pytest.mark.slow
@t5_main.STOCK[0]
@t5_main.STOCK[1]
def test_the_stock_command_computes_on_devices(words, stock, tmp_path):
  folder, ours = tmp_path / 'stock', tmp_path / 'ours'
  stock(*words(folder, *DEVICES, steps=3))
  t5_main.synth_mtf_transformer(*words(ours, '--device=cpu', steps=3))
  found, expected = (
    tf.train.load_checkpoint(f'{path}/model.ckpt-3') for path in (folder, ours)
  )
  names = expected.get_variable_to_shape_map()
  assert found.get_variable_to_shape_map() == names
  # Dropout is that of the devices: a session would draw other numbers.
  for name in names:
    np.testing.assert_array_equal(
      found.get_tensor(name), expected.get_tensor(name), name
    )
  config = (folder / 'operative_config.gin').read_text()
  assert 'run_on_devices.kind' not in config
  # The session continues, and the devices continue from there.
  stock(*words(folder, steps=6))
  stock(*words(folder, *DEVICES, steps=8))
  assert (folder / 'model.ckpt-8.index').exists()
  on_devices = evaluate(stock, words, folder, *DEVICES)
  assert on_devices == pytest.approx(evaluate(stock, words, folder), rel=1e-5)


@pytest.mark.slow
@t5_main.STOCK[0]
@t5_main.STOCK[1]
def test_the_stock_command_on_two_hosts(words, tmp_path):
  """The environment names the hosts, which are processes of this machine."""
  folder, one = tmp_path / 'two', tmp_path / 'one'
  no_dropout = '--gin_param=dropout_rate = 0.0'
  ours = ('--data_dir=', '--vocabulary=')
  given = words(folder, no_dropout, *DEVICES, steps=3)
  line = [word for word in given if not word.startswith(ours)]
  (data,) = (w.partition('=')[2] for w in given if w.startswith('--data_dir='))
  with socket.socket() as listening:
    listening.bind(('127.0.0.1', 0))
    port = listening.getsockname()[1]
  hosts = [
    subprocess.Popen(
      [
        *(sys.executable, '-m', 't5.models.mesh_transformer_main'),
        *(*t5_main.IMPORTS, *line),
        t5_main.NO_MESH,
      ],
      env={
        **os.environ,
        'PYTHONHASHSEED': '0',
        'SYNTH_MTF_DATA_DIR': data,
        'SYNTH_MTF_VOCABULARY': 'bytes',
        'JAX_COORDINATOR_ADDRESS': f'localhost:{port}',
        'JAX_NUM_PROCESSES': '2',
        'JAX_PROCESS_ID': str(number),
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for number in range(2)
  ]
  for host in hosts:
    output, _ = host.communicate(timeout=3000)
    assert not host.returncode, output
    assert 'Mesh: batch:2, all devices; ' in output
  t5_main.synth_mtf_transformer(
    *words(one, no_dropout, '--device=cpu', steps=3)
  )
  found, expected = (
    tf.train.load_checkpoint(f'{path}/model.ckpt-3') for path in (folder, one)
  )
  for name in expected.get_variable_to_shape_map():
    value = expected.get_tensor(name)
    # Single weights whose gradient is nearly 0 move by the sign of rounding.
    difference = np.abs(found.get_tensor(name) - value).mean()
    assert difference <= 1e-6 * np.abs(value).max(), name


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize(
  'more, match',
  [
    (
      ["--gin_param=synth_mtf.run_on_devices.kind = 'cuda'"],
      "kind = 'cuda': expected one of 'cpu', 'gpu', 'tpu'",
    ),
    ([*DEVICES, '--tpu=local'], "kind = 'cpu' and --tpu=local exclude"),
    (
      ['--gin_file=runs/devices.gin', '--device=cpu'],
      "--device=cpu, but synth_mtf.run_on_devices.kind = 'gpu' in gin",
    ),
  ],
)
def test_devices_that_contradict_are_refused(words, tmp_path, more, match):
  folder = tmp_path / 'new'
  with pytest.raises(UserError, match=match):
    t5_main.synth_mtf_transformer(*words(folder, *more, steps=2))
  assert not folder.exists()
