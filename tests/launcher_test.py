"""The host without torch and beyond TensorFlow 2.14, and the process itself."""

import importlib.util
import os
import subprocess
import sys

import pytest

from synth_mtf import launcher

TORCH_IS_HERE = importlib.util.find_spec('torch') is not None
CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def as_command(tmp_path, body, *words, interpreter=(), **environment):
  """Runs Python code as the console script `synth-mtf` would run."""
  script = tmp_path / 'synth-mtf'
  script.write_text(body)
  return subprocess.run(
    [sys.executable, *interpreter, script, *words],
    capture_output=True,
    text=True,
    cwd=tmp_path,
    env={'PATH': os.environ['PATH'], 'PYTHONPATH': CHECKOUT, **environment},
    timeout=120,
    check=False,
  )


@pytest.mark.skipif(TORCH_IS_HERE, reason='torch is installed')
def test_t5_models_import_without_torch():
  import t5.models

  assert t5.models.HfPyTorchModel is None
  assert callable(t5.models.MtfModel)
  assert 'torch' not in sys.modules


def test_mesh_tensorflow_finds_what_newer_tensorflow_moved():
  from mesh_tensorflow import tpu_variables
  from tensorflow.python.framework import ops

  assert callable(ops.register_tensor_conversion_function)
  assert tpu_variables.ReplicatedVariable


def test_prepare_host_again_changes_nothing():
  before = sys.modules['t5.models.hf_model'] if not TORCH_IS_HERE else None
  launcher.prepare_host()
  if not TORCH_IS_HERE:
    assert sys.modules['t5.models.hf_model'] is before


@pytest.mark.parametrize(
  ('program', 'is_command'),
  [
    ('/usr/bin/synth-mtf', True),
    ('synth-mtf.exe', True),
    ('/usr/bin/python', False),
    ('-c', False),
    ('', False),
  ],
)
def test_is_command(monkeypatch, program, is_command):
  monkeypatch.setattr(sys, 'argv', [program, 'doctor'])
  assert launcher.is_command() is is_command


def test_help_needs_no_tensorflow(tmp_path):
  done = as_command(
    tmp_path,
    'import sys\n'
    'from synth_mtf.cli import COMMANDS, main\n'
    'try:\n'
    '  main(["--help"])\n'
    'finally:\n'
    '  assert "tensorflow" not in sys.modules\n'
    '  print(*COMMANDS, sep="\\n    ")\n',
  )
  assert done.returncode == 0, done.stderr
  for command in ('demo', 'transformer', 'doctor'):
    assert done.stdout.count(f'    {command}') >= 1


def test_a_command_without_its_host_says_so_in_one_message(tmp_path):
  done = as_command(
    tmp_path,
    'import sys\nfrom synth_mtf.cli import main\nsys.exit(main())\n',
    'transformer',
    '--gin_file=x',
    interpreter=['-S'],  # no site-packages: nothing is installed
    PYTHONHASHSEED='0',
  )
  assert done.returncode == 2
  assert done.stderr.startswith(
    'synth-mtf: error: the host stack cannot be imported: '
  )
  assert 'synth-mtf doctor' in done.stderr


@pytest.mark.parametrize(
  ('environment', 'expected'),
  [({}, '0'), ({'PYTHONHASHSEED': '7'}, '7')],
)
def test_fix_hash_seed_starts_the_command_again(
  tmp_path, environment, expected
):
  done = as_command(
    tmp_path,
    'import os, sys\n'
    'from synth_mtf import launcher\n'
    'launcher.fix_hash_seed()\n'
    'print(os.environ["PYTHONHASHSEED"], sys.argv[1:], hash("a"))\n',
    'a b',
    '--c=d',
    **environment,
  )
  again = subprocess.run(
    [sys.executable, '-c', 'print(hash("a"))'],
    capture_output=True,
    text=True,
    env={'PYTHONHASHSEED': expected},
    check=True,
  )
  assert done.stdout == f"{expected} ['a b', '--c=d'] {again.stdout}"
