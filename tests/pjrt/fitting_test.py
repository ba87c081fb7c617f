"""Whether a step fits a device, by the compiler's count."""

import pathlib
import stat
import sys

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import gin_files, model as models, tpu_runtime
from synth_mtf.pjrt import devices, fitting, program
from tests.checkout import CHECKOUT
from tests.cli import command

LENGTHS = {'inputs': 16, 'targets': 8}
FILES = ['sizes/tiny.gin', 'variants/random_vanilla.gin']
BINDINGS = ['num_layers = 1', 'dropout_rate = 0.1']
COMPILER = CHECKOUT / fitting.COMPILER
has_compiler = pytest.mark.skipif(
  not COMPILER.exists(), reason='made by make tpu-compile'
)
SLOW = pytest.mark.slow  # compiles a model


def lowered(mesh):
  more = [f'utils.run.mesh_shape = {mesh!r}']
  gin_files.parse(FILES, [*BINDINGS, *more])
  return fitting.lower_step(8, LENGTHS)


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


@SLOW
@pytest.mark.xla
@has_compiler
def test_a_slice_needs_no_chip(monkeypatch):
  monkeypatch.chdir(CHECKOUT)
  fit = fitting.on_slice(lowered('batch:8'), 'v5litepod-8')
  # Short rows are padded.
  assert fit.memory and state() <= fit.memory.kept <= 2 * state()
  assert fit.there == 16 * 2**30 and fit.fits


def large():
  """A program whose result has 25.6 GB."""
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [80_000], name='x')
    return program.lower(graph, [x[:, None] * x[None, :]], [])


@SLOW
@pytest.mark.xla
@has_compiler
def test_the_compiler_says_what_does_not_fit(monkeypatch):
  monkeypatch.chdir(CHECKOUT)
  fit = fitting.on_slice(large(), 'v5litepod-8')
  assert not fit.fits and fit.memory is None
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
  assert 'pip install jax==' in err and 'libtpu==' in err
  pins = (CHECKOUT / 'tests' / 'tpu' / 'requirements.txt').read_text()
  wanted = fitting.INSTALL.partition('pip install ')[2].split()
  assert {*wanted} <= {*pins.split()}


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
  assert heads.split()[1:3] == ['kept', 'temporary']
  assert row.split()[0] == 'random' and row.split()[-2:] == ['?', 'yes']
