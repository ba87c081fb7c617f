"""`synth-mtf transformer --device` on one CPU."""

import functools
import pathlib
import random
import shutil
import signal
import subprocess
import time

import jax
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from synth_mtf.checkpoints.folder import Folder, is_complete, step_of
from synth_mtf.errors import UserError
from synth_mtf.host import events, tpu_runtime
from synth_mtf.pjrt import devices, estimator, program
from tests import official_files
from tests.cli import t5_main
from tests.cli.command import PROGRAM

pytestmark = [pytest.mark.slow, pytest.mark.xla]  # trains

CPU = '--device=cpu'
DROPOUT = '--gin_param=dropout_rate = 0.1'
NO_DROPOUT = '--gin_param=dropout_rate = 0.0'


@pytest.fixture(scope='module')
def words(tmp_path_factory):
  """Makes the command line of a run."""
  data = official_files.write_text(tmp_path_factory.mktemp('data'))

  def make(model_dir, *more, steps):
    return [
      f'--model_dir={model_dir}',
      f'--data_dir={data}',
      '--vocabulary=bytes',
      *t5_main.REPEATABLE,
      '--gin_param=utils.run.batch_size = 2',
      '--gin_param=utils.run.save_checkpoints_steps = 2',
      '--gin_param=utils.run.keep_checkpoint_max = 2',
      f'--gin_param=utils.run.train_steps = {steps}',
      *more,
    ]

  return make


@pytest.fixture(scope='module')
def run(words):
  def in_this_process(model_dir, *more, steps):
    line = words(model_dir, *more, steps=steps)
    assert t5_main.synth_mtf_transformer(*line) == 0

  return in_this_process


@pytest.fixture(scope='module')
def trained(run, tmp_path_factory):
  """Six steps with dropout on the device."""
  folder = tmp_path_factory.mktemp('trained')
  run(folder, CPU, DROPOUT, steps=6)
  return folder


@pytest.fixture(scope='module')
def in_session(run, tmp_path_factory):
  """Runs the session without dropout; makes the folder of so many steps."""

  @functools.cache
  def of_steps(steps):
    folder = tmp_path_factory.mktemp('session')
    run(folder, NO_DROPOUT, steps=steps)
    return folder

  return of_steps


def values(path):
  reader = tf.train.load_checkpoint(str(path))
  names = reader.get_variable_to_shape_map()
  return {name: reader.get_tensor(name) for name in names}


def assert_same(path, other):
  found, expected = values(path), values(other)
  assert found.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_checkpoints_are_those_of_the_session(trained, in_session):
  folders = trained, in_session(6)
  found, expected = (
    tf.train.load_checkpoint(f'{folder}/model.ckpt-6') for folder in folders
  )
  for facts in ('get_variable_to_shape_map', 'get_variable_to_dtype_map'):
    assert getattr(found, facts)() == getattr(expected, facts)()
  # The pointer and what is kept are alike, too.
  for name in ('checkpoint', 'operative_config.gin'):
    assert (trained / name).exists()
  pointers = [(folder / 'checkpoint').read_text() for folder in folders]
  assert pointers[0] == pointers[1]


def test_bfloat16_on_request(run, trained, tmp_path, monkeypatch):
  """T5's main computes in float32 on CPUs; gin may name another type."""
  programs = []

  def lower(*given):
    programs.append(program.lower(*given))
    return programs[-1]

  monkeypatch.setattr(estimator, 'lower', lower)
  name = 'utils.get_variable_dtype.activation_dtype'
  run(tmp_path, CPU, DROPOUT, f"--gin_param={name} = 'bfloat16'", steps=2)
  module = hlo_pb2.HloModuleProto.FromString(programs[0].hlo)
  products = {
    instruction.shape.element_type
    for computation in module.computations
    for instruction in computation.instructions
    if instruction.opcode == 'dot'
  }
  assert xla_data_pb2.BF16 in products
  # XLA may keep more bits on a CPU, so that the losses may even be equal.
  found, expected = (
    events.read(str(folder))['loss'][1] for folder in (tmp_path, trained)
  )
  assert found == pytest.approx(expected, rel=2e-2)
  reader = tf.train.load_checkpoint(str(tmp_path / 'model.ckpt-2'))
  assert tf.bfloat16 not in reader.get_variable_to_dtype_map().values()


def test_event_files_have_the_loss_and_the_speed(trained):
  scalars = events.read(str(trained))
  assert {1, 6} <= scalars['loss'].keys()
  assert scalars['nats_per_token'].keys() == {1, 2, 3, 4, 5, 6}
  for loss in scalars['nats_per_token'].values():
    assert loss == pytest.approx(np.log(384), abs=1)  # of random weights
  assert scalars['global_step/sec']
  assert 1 in scalars['learning_rate']


def test_an_interrupted_run_ends_like_an_uninterrupted_one(
  run, trained, tmp_path
):
  run(tmp_path, CPU, DROPOUT, steps=3)
  run(tmp_path, CPU, DROPOUT, steps=6)
  assert_same(tmp_path / 'model.ckpt-6', trained / 'model.ckpt-6')


def test_a_killed_run_resumes(words, run, trained, tmp_path):
  line = words(tmp_path, CPU, DROPOUT, steps=10**6)
  with subprocess.Popen([PROGRAM, 'transformer', *line]) as process:
    while not (tmp_path / 'model.ckpt-2.index').exists():
      assert process.poll() is None
      time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
  # Steps beyond 6 would have nothing to do in the run of 6 steps.
  for path in tmp_path.glob('model.ckpt-*'):
    if step_of(path.name) > 2:  # perhaps the folder of an unfinished save
      path.unlink() if path.is_file() else shutil.rmtree(path)
  (tmp_path / 'checkpoint').write_text(
    'model_checkpoint_path: "model.ckpt-2"\n'
  )
  run(tmp_path, CPU, DROPOUT, steps=6)
  assert_same(tmp_path / 'model.ckpt-6', trained / 'model.ckpt-6')


def test_a_run_killed_while_it_writes_resumes(words, programs, tmp_path):
  """A thread writes, and the next steps run, at all times."""
  often = '--gin_param=utils.run.save_checkpoints_steps = 1'
  wide = '--gin_param=d_ff = 32768'  # 60 MB take some time
  line = words(tmp_path, CPU, NO_DROPOUT, often, wide, steps=10**6)
  moments = random.Random(0)
  step = -1
  for _ in range(3):
    command = [programs / 'synth-mtf', 'transformer', *line]
    with subprocess.Popen(command) as process:
      while not any(
        step_of(path.name) > step + 2 for path in tmp_path.glob('*_temp')
      ):
        assert process.poll() is None
        time.sleep(0.001)
      time.sleep(moments.uniform(0, 0.3))
      process.send_signal(signal.SIGKILL)
    time.sleep(1)  # the fork dies with it
    latest = Folder(str(tmp_path)).latest()
    assert latest and is_complete(latest)
    assert step_of(latest) > step
    step = step_of(latest)


@pytest.mark.parametrize('first, second', [((), (CPU,)), ((CPU,), ())])
def test_session_and_devices_continue_from_each_other(
  run, in_session, tmp_path, first, second
):
  """Without dropout, the result is that of a run on one of them."""
  crossed = tmp_path / 'crossed'
  if first:
    run(crossed, *first, NO_DROPOUT, steps=3)
  else:
    shutil.copytree(in_session(3), crossed)
  run(crossed, *second, NO_DROPOUT, steps=6)
  found, expected = (
    values(folder / 'model.ckpt-6') for folder in (crossed, in_session(6))
  )
  assert found.keys() == expected.keys()
  for name in expected:
    if '_slot_' not in name:
      # Single weights whose gradient is nearly 0 move by the sign of rounding.
      difference = np.abs(found[name] - expected[name]).mean()
      assert difference <= 5e-3 * np.abs(expected[name]).max(), name


@pytest.mark.parametrize('decoding', ['beam_search', 'greedy_decode'])
def test_decoding_equals_the_session(run, trained, tmp_path, decoding):
  text = tmp_path / 'inputs.txt'
  text.write_text('the sky is blue\na tree\n')
  outputs = []
  for name, device in (('session', ()), ('devices', (CPU,))):
    folder = pathlib.Path(shutil.copytree(trained, tmp_path / name))
    settings = (
      f'--gin_file={decoding}.gin',
      '--gin_file=infer.gin',
      '--gin_param=utils.run.eval_checkpoint_step = -1',
      f'--gin_param=decode_from_file.input_filename = {str(text)!r}',
      f'--gin_param=decode_from_file.output_filename = {str(folder / "out")!r}',
      '--gin_param=Bitransformer.decode.max_decode_length = 32',
    )
    run(folder, *settings, *device, steps=6)
    outputs.append((folder / 'out-6').read_text())
  assert outputs[0] == outputs[1]


def test_scores_equal_the_session(run, trained, tmp_path):
  """The log likelihoods of targets that a file gives."""
  inputs, targets = tmp_path / 'inputs.txt', tmp_path / 'targets.txt'
  inputs.write_text('the sky is blue\na tree\nit rains\n')
  targets.write_text('blue\ngreen as grass\nno\n')
  scores = []
  for name, device in (('session', ()), ('devices', (CPU,))):
    out = tmp_path / name
    run(
      trained,
      '--gin_file=score_from_file.gin',
      '--gin_param=utils.run.eval_checkpoint_step = -1',
      '--gin_param=save_scores.save_example_text = False',
      f'--gin_param=inputs_filename = {str(inputs)!r}',
      f'--gin_param=targets_filename = {str(targets)!r}',
      f'--gin_param=scores_filename = {str(out)!r}',
      *device,
      steps=6,
    )
    lines = pathlib.Path(f'{out}.scores').read_text().split()
    scores.append([float(line) for line in lines])
  found, expected = scores
  assert len(expected) == 3 and max(expected) < 0
  assert found == pytest.approx(expected, rel=1e-5)


def decode(run, folder, text, *more):
  """Returns what a run decodes for each line of a text."""
  source = folder / 'inputs.txt'
  source.write_text(text)
  run(
    folder,
    CPU,
    *more,
    '--gin_file=infer.gin',
    '--gin_param=utils.run.eval_checkpoint_step = -1',
    f'--gin_param=decode_from_file.input_filename = {str(source)!r}',
    f'--gin_param=decode_from_file.output_filename = {str(folder / "out")!r}',
    '--gin_param=Bitransformer.decode.max_decode_length = 32',
    steps=6,
  )
  return (folder / 'out-6').read_text().splitlines()


def test_samples_of_one_text_differ(run, trained, tmp_path):
  folder = pathlib.Path(shutil.copytree(trained, tmp_path / 'run'))
  text = 'the sky is blue\n' * 4
  greedy = decode(run, folder, text, '--gin_file=greedy_decode.gin')
  assert len(greedy) == 4 and len({*greedy}) == 1
  sampled = decode(run, folder, text, '--gin_file=sample_decode.gin')
  assert len({*sampled}) == 4, 'rows, steps and batches draw their own numbers'


def test_microbatches_train_like_the_whole_batch(run, in_session, tmp_path):
  split = 'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica'
  run(tmp_path, CPU, NO_DROPOUT, f'--gin_param={split} = 32', steps=3)
  found, expected = (
    events.read(str(folder))['loss'] for folder in (tmp_path, in_session(3))
  )
  assert found.keys() == expected.keys()
  for step, loss in expected.items():
    assert found[step] == pytest.approx(loss, rel=1e-5), step


def test_a_loss_that_is_not_finite_ends_the_run(run, trained, tmp_path):
  folder = pathlib.Path(shutil.copytree(trained, tmp_path / 'run'))
  rate = '--gin_param=utils.run.learning_rate_schedule = 1e38'
  with pytest.raises(UserError, match='model.ckpt-6; the same command resumes'):
    run(folder, CPU, DROPOUT, rate, steps=20)
  for path in folder.glob('model.ckpt-*.index'):
    for name, value in values(path.with_suffix('')).items():
      assert np.isfinite(value).all(), (path, name)


@pytest.mark.parametrize(
  'more, match',
  [
    (
      ['--gin_param=utils.run.mesh_shape = "batch:2"'],
      '(?s)2 cores, but JAX finds 1 devices.*device_count=2',
    ),
    (['--gin_param=utils.run.mode = "export"'], 'run it without --device'),
    (['--use_model_api', '--mode=export_predict'], 'run it without --device'),
    (['--use_model_api', '--mode=export_score'], 'run it without --device'),
  ],
)
def test_a_run_that_does_not_fit_is_refused(run, tmp_path, more, match):
  with pytest.raises(UserError, match=match):
    run(tmp_path / 'new', CPU, *more, steps=2)
  assert not (tmp_path / 'new').exists()


def test_device_and_tpu_exclude_each_other(run, tmp_path):
  with pytest.raises(UserError, match='exclude each other'):
    run(tmp_path / 'new', CPU, '--tpu=local', steps=2)


def test_servers_of_tensorflow_are_refused(run, tmp_path, monkeypatch):
  monkeypatch.setenv('TF_CONFIG', '{"session_master": "grpc://localhost:1"}')
  with pytest.raises(UserError, match='unset TF_CONFIG'):
    run(tmp_path / 'new', CPU, steps=2)


def test_a_tensorflow_for_tpus_is_refused(run, tmp_path, monkeypatch):
  monkeypatch.setattr(tpu_runtime, 'has_runtime', lambda: True)
  with pytest.raises(UserError, match='each CPU .* built for TPUs'):
    run(tmp_path / 'new', CPU, steps=2)


@pytest.mark.parametrize(
  'kind, fault, match',
  [
    ('gpu', 'Unknown backend gpu', r'pip install "jax\[cuda12\]=='),
    (
      'tpu',
      'The TPU is already in use by process with pid 4.',
      '(?s)pid 4.*wait for the other one',
    ),
    (
      'tpu',
      'Internal error when accessing libtpu multi-process lockfile. (set '
      "JAX_PLATFORMS='' to automatically choose an available backend)",
      f'lockfile.\n.*{tpu_runtime.LOCK} belongs to ann.*sudo rm',
    ),
  ],
)
def test_devices_that_are_not_found_have_a_reason(
  monkeypatch, tmp_path, kind, fault, match
):
  def none(kind):
    raise RuntimeError(fault)

  library = tmp_path / 'libtpu.so'
  library.touch()
  monkeypatch.setenv('TPU_LIBRARY_PATH', str(library))
  monkeypatch.setattr(tpu_runtime, 'lock_owner', lambda: 'ann')
  monkeypatch.setattr(jax, 'devices', none)
  monkeypatch.setattr(jax.config, 'update', lambda *_: None)
  with pytest.raises(UserError, match=match):
    devices.find(kind)
