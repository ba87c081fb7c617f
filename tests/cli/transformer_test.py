"""T5's main through `synth-mtf transformer`, on a text in a folder."""

import argparse
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.cli import transformer
from synth_mtf.errors import UserError
from tests.cli import t5_main

pytestmark = pytest.mark.slow  # starts processes

TINY = (
  *t5_main.REPEATABLE,
  '--gin_param=utils.run.batch_size = 2',
  '--gin_param=utils.run.iterations_per_loop = 2',
  '--gin_param=utils.run.save_checkpoints_steps = 2',
)


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('data')
  text = folder / 'corpus' / 'text.txt'
  text.parent.mkdir()
  line = (
    'It was a bright cold day in April, and the clocks were striking {}.\n\n'
  )
  text.write_text(''.join(line.format(hour) for hour in range(400)))
  return folder


@pytest.fixture(scope='module')
def run(data_dir):
  def run_command(model_dir, *words, steps=2, without=None):
    return t5_main.synth_mtf_transformer(
      f'--model_dir={model_dir}',
      f'--data_dir={data_dir}',
      '--vocabulary=bytes',
      *(word for word in TINY if word != without),
      f'--gin_param=utils.run.train_steps = {steps}',
      *words,
    )

  return run_command


@pytest.fixture(scope='module')
def trained(run, tmp_path_factory) -> pathlib.Path:
  """The folder of a run of two steps."""
  folder = tmp_path_factory.mktemp('trained')
  assert run(folder) == 0
  return folder


@pytest.fixture
def copy(trained, tmp_path) -> pathlib.Path:
  return pathlib.Path(shutil.copytree(trained, tmp_path / 'copy'))


def contents(folder) -> dict[str, int]:
  """Sizes and names of what must survive a refused run."""
  return {p.name: p.stat().st_size for p in folder.glob('model.ckpt-*')}


def values(path) -> dict[str, Any]:
  reader = tf.train.load_checkpoint(str(path))
  return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}


def test_trains_without_an_import_flag_and_keeps_a_config_that_reloads(trained):
  assert tf.train.latest_checkpoint(str(trained)).endswith('model.ckpt-2')
  config = (trained / 'operative_config.gin').read_text()
  assert 'import synth_mtf\n' in config
  assert 'SyntheticAttention.synthesizers' in config


def test_resumes_as_if_it_had_not_stopped(run, copy, tmp_path):
  assert run(copy, steps=4) == 0
  assert run(tmp_path / 'straight', steps=4) == 0
  resumed = values(copy / 'model.ckpt-4')
  straight = values(tmp_path / 'straight' / 'model.ckpt-4')
  assert resumed.keys() == straight.keys()
  changed = [n for n in straight if not np.array_equal(resumed[n], straight[n])]
  assert changed == []
  first, again = (
    values(folder / 'model.ckpt-2') for folder in (copy, tmp_path / 'straight')
  )
  assert not [n for n in first if not np.array_equal(first[n], again[n])]


def test_help_lists_the_flags_of_t5_and_ours(capsys):
  assert transformer.run(argparse.Namespace(flags=['--help'])) == 0
  printed = capsys.readouterr().out
  for flag in ('--gin_file', '--tpu', '--model_dir', '--data_dir'):
    assert flag in printed


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (
      ['--gin_file=variants/randm.gin'],
      r"gin file 'variants/randm.gin' does not.*'variants/random.gin'",
    ),
    (
      ['--gin_file=/nowhere/operative_config.gin'],
      r"gin file '/nowhere/operative_config.gin' does not exist",
    ),
    (
      ['--gin_param=SyntheticAtention.mixing = "sum"'],
      r"'SyntheticAtention'; did you mean 'SyntheticAttention'",
    ),
    (
      ['--gin_param=SyntheticAttention.synthesizers = [@synth_mtf.Randm]'],
      r"'synth_mtf.Randm'; did you mean .*'Random'",
    ),
    (
      ['--gin_param=utils.run.trainsteps = 1'],
      r"'utils.run' has no parameter 'trainsteps'; did you mean 'train_steps'",
    ),
    (['--gin_param=utils.run.batch_size = (4'], 'gin syntax'),
    (
      ["--gin_param=MIXTURE_NAME = 'synth_text_span_coruption'"],
      r"no task or mixture .*did you mean 'synth_text_span_corruption'",
    ),
    (
      ["--gin_param=utils.run.mesh_shape = 'batch:2'"],
      r'the mesh has 2 parts, but .*mesh_devices names 1 devices',
    ),
    (
      ["--gin_param=utils.run.mesh_shape = 'batch:3'"],
      r'batch:?=3.* does not divide',
    ),
    (
      ["--gin_param=utils.run.variable_filter = '^nowhere'"],
      r"variable_filter = '\^nowhere' matches no variable: nothing would be",
    ),
    (
      ["--gin_param=utils.run.init_checkpoint = '/nowhere/model.ckpt-1'"],
      r'there is no checkpoint /nowhere/model.ckpt-1',
    ),
    (
      [
        '--gin_param=utils.run.sequence_length ={"inputs": 600, "targets": 160}'
      ],
      r'length 600 exceeds max_length 512',
    ),
    (
      ['--gin_param=utils.run.sequence_length = {"inputs": 99, "targets": 8}'],
      r'makes 22 targets, but utils.run.sequence_length allows 8',
    ),
  ],
)
def test_a_mistake_is_one_message(run, tmp_path, words, message):
  with pytest.raises(UserError, match=f'(?s){message}') as caught:
    run(tmp_path, *words)
  assert 'In call to configurable' not in str(caught.value)
  assert 'Traceback' not in str(caught.value)
  assert contents(tmp_path) == {}


def test_a_data_folder_without_the_files(run, tmp_path):
  with pytest.raises(UserError, match=r"split 'train': no file corpus/"):
    run(tmp_path, f'--data_dir={tmp_path}')


def test_a_malformed_row_is_found_before_training(run, tmp_path):
  file = tmp_path / 'glue' / 'CoLA' / 'train.tsv'
  file.parent.mkdir(parents=True)
  file.write_text('gj04\t1\t\tA book.\ngj04\t2\t\tA pen.\n')
  with pytest.raises(UserError, match=r'CoLA/train.tsv:2: .*2'):
    run(
      tmp_path,
      f'--data_dir={tmp_path}',
      "--gin_param=MIXTURE_NAME = 'synth_glue_cola_v002'",
    )


def test_no_mesh(run, tmp_path):
  with pytest.raises(UserError, match='no mesh is set. On a CPU or GPU give'):
    run(tmp_path, without='--gin_file=runs/cpu.gin')


def test_a_run_that_must_have_trained(run, tmp_path):
  with pytest.raises(UserError, match="mode 'eval' needs a checkpoint"):
    run(tmp_path, "--gin_param=utils.run.mode = 'eval'")


def test_a_split_that_was_trained_on(run, trained):
  with pytest.raises(UserError, match="mode 'eval' would .*'validation'"):
    run(trained, "--gin_param=utils.run.mode = 'eval'")


def test_checkpoints_are_not_rounded_unasked(tmp_path):
  with pytest.raises(UserError, match='kept in bfloat16.*master_dtype'):
    t5_main.synth_mtf_transformer(
      f'--model_dir={tmp_path}',
      '--gin_file=models/t5.1.0.base.gin',
      "--gin_param=utils.run.mesh_shape = ''",
    )


def test_a_model_folder_that_cannot_be_made(run):
  with pytest.raises(UserError, match='/dev/null/run cannot be made'):
    run('/dev/null/run')


def test_a_lost_pointer_does_not_restart_from_zero(run, copy):
  (copy / 'checkpoint').unlink()
  before = contents(copy)
  with pytest.raises(UserError, match='holds model.ckpt-2.* overwrite it'):
    run(copy, steps=4)
  assert contents(copy) == before


def test_a_lost_index_names_what_is_there(run, copy):
  (copy / 'model.ckpt-2.index').unlink()
  with pytest.raises(
    UserError, match='points at .*model.ckpt-2.* holds model.ckpt-0'
  ):
    run(copy, steps=4)


@pytest.mark.parametrize('damage', ['truncated', 'flipped'])
def test_a_damaged_checkpoint_and_the_complete_one(run, copy, damage):
  for path in copy.glob('model.ckpt-2.data*'):
    content = bytearray(path.read_bytes())
    if damage == 'truncated':
      content = content[: len(content) // 2]
    elif content:
      content[len(content) // 2] ^= 1
    path.write_bytes(content)
  with pytest.raises(
    UserError, match=r'damaged in .*: model.ckpt-2 .*Complete: model.ckpt-0'
  ):
    run(copy, steps=4)


@pytest.mark.parametrize(
  ('word', 'message'),
  [
    (
      '--gin_param=d_ff = 256',
      r'wi/kernel is float32\[64, 128\] in the checkpoint',
    ),
    ('--gin_file=variants/dense.gin', r'dense/W1 is not in it'),
    ('--gin_file=variants/vanilla.gin', r'random/R is not in the model'),
    (
      "--gin_param=utils.get_variable_dtype.master_dtype = 'bfloat16'",
      r'float32\[.*\] in the checkpoint, bfloat16',
    ),
    ('--gin_param=Unitransformer.max_length = 64', r'random/R is float32\['),
  ],
)
def test_a_checkpoint_of_another_model(run, copy, word, message):
  before = contents(copy)
  with pytest.raises(UserError, match=f'made by another model: .*{message}'):
    run(copy, word, steps=4)
  assert contents(copy) == before


def test_a_tpu_that_does_not_answer(run, tmp_path):
  with socket.socket() as bound:  # a port on which nobody listens
    bound.bind(('localhost', 0))
    address = f'grpc://localhost:{bound.getsockname()[1]}'
    with pytest.raises(UserError, match=f'--tpu={address} does not answer'):
      run(tmp_path, f'--tpu={address}')


def test_command_line_exit_status_and_message(tmp_path):
  command = pathlib.Path(sys.executable).with_name('synth-mtf')
  done = subprocess.run(
    [
      command,
      'transformer',
      f'--model_dir={tmp_path}',
      '--gin_file=vanila.gin',
    ],
    capture_output=True,
    text=True,
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
    timeout=120,
    check=False,
  )
  assert done.returncode == 2
  assert "synth-mtf: error: gin file 'vanila.gin' does not" in done.stderr
  assert 'Traceback' not in done.stderr
