"""Whether a step fits a device, by the compiler's count."""

import pathlib
import re
import stat
import sys

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as models, tpu_runtime
from synth_mtf.pjrt import devices, fitting, lowering, program
from tests.checkout import CHECKOUT
from tests.cli import command
from tests.pjrt.setting import KINDS

LENGTHS = {'inputs': 16, 'targets': 8}
FILES = ['sizes/tiny.gin', 'variants/random_vanilla.gin']
MICROBATCHES = (
  'utils.serialize_num_microbatches.tokens_per_microbatch_per_replica'
)
BINDINGS = ['num_layers = 1', 'dropout_rate = 0.1']
COMPILER = CHECKOUT / fitting.COMPILER
has_compiler = pytest.mark.skipif(
  not COMPILER.exists(), reason='docs/scaling.md says how to install it'
)
SLOW = pytest.mark.slow  # compiles a model


def lowered(mesh):
  more = [f'utils.run.mesh_shape = {mesh!r}']
  gin_files.parse(FILES, [*BINDINGS, *more])
  return lowering.step_of_run(8, LENGTHS).lower()


def state() -> int:
  """Bytes of weights and of Adafactor's slots.

  Slots are means over rows and columns where both have 128 elements or more.
  """
  gin_files.parse(FILES, BINDINGS)
  numbers = 0
  for shape in models.build(32128, lengths=LENGTHS).shapes.values():
    numbers += shape.size
    row, column = sorted([1, 1, *shape.to_integer_list])[-2:]
    if row >= 128:
      numbers += shape.size // row + shape.size // column
    else:
      numbers += shape.size
  return 4 * numbers


@SLOW
@pytest.mark.xla
def test_a_step_keeps_its_weights_and_slots():
  fit = fitting.on_devices(lowered('batch:1'), devices.find('cpu')[:1])
  assert fit.memory
  # JAX 0.4.30 does not update them in place.
  copies = round(fit.memory.kept / state())
  assert copies in (1, 2)
  assert fit.memory.kept == pytest.approx(copies * state(), rel=0.01)
  assert fit.memory.temporary > 0
  assert fit.needed == fit.memory.kept + fit.memory.temporary
  assert fit.there is None and fit.fits
  assert fit.cost is None  # the compiler for CPUs omits products of a library


@SLOW
@pytest.mark.xla
@has_compiler
@pytest.mark.parametrize('kind', KINDS)
def test_a_slice_takes_every_kind_of_program(kind):
  setting = KINDS[kind]
  setting.parse()
  fit = fitting.on_slice(setting.step().lower(), 'v5litepod-8', str(COMPILER))
  assert fit.cost and fit.cost.flops > 0 and fit.cost.accessed > 0
  assert fit.memory and fit.memory.kept > 0
  assert fit.there == 16 * 2**30 and fit.fits


@SLOW
@pytest.mark.xla
@has_compiler
def test_a_slice_keeps_weights_and_slots():
  fit = fitting.on_slice(lowered('batch:8'), 'v5litepod-8', str(COMPILER))
  # Short rows are padded.
  assert fit.memory and state() <= fit.memory.kept <= 2 * state()


def large():
  """A program whose result has 25.6 GB."""
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [80_000], name='x')
    return program.lower(graph, [x[:, None] * x[None, :]], [])


@SLOW
@pytest.mark.xla
@has_compiler
def test_the_compiler_says_what_does_not_fit():
  fit = fitting.on_slice(large(), 'v5litepod-8', str(COMPILER))
  assert not fit.fits and fit.memory is None and fit.cost is None
  assert fit.needed == pytest.approx(25.6e9, rel=0.02)
  assert fit.there and 15 * 2**30 < fit.there <= 16 * 2**30


@pytest.mark.parametrize(
  ('script', 'match'),
  [
    ('print(\'{"error": "no rule for Foo"}\')', 'v5litepod-8: no rule for Foo'),
    ('raise ImportError("no libtpu")', '(?s)ImportError: no libtpu.*has run'),
    ('import os; os.kill(os.getpid(), 9)', 'memory runs out.*num_layers = 3'),
  ],
)
def test_a_compiler_that_fails_is_reported(tmp_path, script, match):
  python = tmp_path / 'python'
  python.write_text(f'#!{sys.executable}\n{script}\n')
  python.chmod(python.stat().st_mode | stat.S_IXUSR)
  step = program.Lowered([], [], [], 1, b'')
  with pytest.raises(UserError, match=match):
    fitting.on_slice(step, 'v5litepod-8', str(python))


def test_a_compiler_that_is_missing_can_be_installed(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  status, _, err = command.run('cost', '--device=v5e-8')
  assert status == 2
  assert fitting.INSTALL in err
  documented = (CHECKOUT / 'docs' / 'scaling.md').read_text()
  for line in fitting.INSTALL.split(' && '):
    assert f'$ {line}\n' in documented


def test_a_tensorflow_for_tpus_is_refused(monkeypatch):
  monkeypatch.setattr(tpu_runtime, 'has_runtime', lambda: True)
  status, _, err = command.run('cost', '--device=cpu', '--variants=random')
  assert status == 2
  assert '--device=cpu: this TensorFlow was built for TPUs' in err


def test_cores_that_do_not_share_a_model_evenly(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  python = tmp_path / pathlib.Path(fitting.COMPILER)
  python.parent.mkdir(parents=True)
  python.touch()
  status, _, err = command.run(
    'cost', '--device=v6e-8', '--model_parallelism=3'
  )
  assert status == 2
  assert '--model_parallelism=3 does not divide the 8 cores' in err


@SLOW
@pytest.mark.xla
def test_a_table_of_this_machine():
  status, out, _ = command.run(
    *('cost', '--device=cpu', '--size=tiny', '--variants=random'),
    *('--inputs=16', '--targets=8', '--batch_size=8'),
    *(f'--gin_param={binding}' for binding in BINDINGS),
  )
  assert status == 0
  title, heads, row = out.splitlines()
  assert '8 sequences of 16 inputs and 8 targets on cpu (batch:1' in title
  assert heads.split()[1:5] == ['GFLOP', 'accessed', 'kept', 'temporary']
  assert row.split()[:3] == ['random', '?', '?']
  assert row.split()[-2:] == ['?', 'yes']


@SLOW
@pytest.mark.xla
@has_compiler
def test_a_table_of_a_slice(monkeypatch):
  """Of a run's own gin file, on packed rows, in microbatches."""
  monkeypatch.chdir(CHECKOUT)
  status, out, _ = command.run(
    *('cost', '--device=v5e-8', '--size=tiny', '--variants=random'),
    *('--inputs=16', '--targets=8', '--batch_size=16', '--gin_file'),
    *('runs/finetune_en_mix.gin', '--gin_param=num_layers = 1'),
    '--gin_param=mesh_train_dataset_fn.pack = True',
    f'--gin_param={MICROBATCHES} = 16',
  )
  assert status == 0
  title, _, row, loop = out.splitlines()
  assert 'on v5litepod-8 (batch:8,model:1)' in title
  assert re.fullmatch(r'random +\d\.\d( +\d\.\d\d){4} +17\.18 +yes', row)
  assert 'The step has 2 microbatches' in loop
  assert f'{MICROBATCHES} = None' in loop
