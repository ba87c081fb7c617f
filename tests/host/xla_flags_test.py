"""Flags of XLA that would abort a run."""

import importlib.metadata
import os
import subprocess

import pytest

from synth_mtf.errors import UserError
from synth_mtf.host import xla_flags
from tests.cli import command

pytestmark = pytest.mark.slow  # starts processes

GOOD = '--xla_force_host_platform_device_count=2'


def version(package):
  return importlib.metadata.version(package)


def no_process(*_, **__):
  raise AssertionError('a process is started')


@pytest.mark.parametrize('flags', [None, '', ' '])
def test_without_flags_no_process_starts(monkeypatch, flags):
  if flags is None:
    monkeypatch.delenv('XLA_FLAGS', raising=False)
  else:
    monkeypatch.setenv('XLA_FLAGS', flags)
  monkeypatch.setattr(subprocess, 'run', no_process)
  xla_flags.check(xla_flags.OF_XLA)


@pytest.mark.parametrize(
  ('flags', 'reason'),
  [
    (
      f'{GOOD} --xla_gpu_no_such_flag=true',
      r'Unknown flags? in XLA_FLAGS: --xla_gpu_no_such_flag=true',
    ),
    (
      '--xla_cpu_multi_thread_eigen=maybe',
      "Couldn't interpret value maybe for flag xla_cpu_multi_thread_eigen",
    ),
    ('no_such_file', 'Could not open file "no_such_file"'),
  ],
)
def test_flags_that_jax_refuses(monkeypatch, flags, reason):
  monkeypatch.setenv('XLA_FLAGS', flags)
  title = f'JAX {version("jax")} does not take the environment variable XLA_FL'
  with pytest.raises(UserError, match=f'^{title}AGS: {reason}'):
    xla_flags.check(xla_flags.OF_XLA)


def test_a_flag_that_jax_alone_knows(monkeypatch):
  """TensorFlow, whose XLA is older, would abort after JAX has started."""
  if not version('tensorflow').startswith('2.12'):
    pytest.skip('TensorFlow 2.12 lacks this flag')
  monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_use_thunk_runtime=false')
  with pytest.raises(
    UserError, match=r'^TensorFlow 2\.12.*: --xla_cpu_use_thunk_runtime=false'
  ):
    xla_flags.check(xla_flags.OF_XLA)


def test_flags_that_both_take_are_tried_once(monkeypatch, tmp_path):
  monkeypatch.setenv('XLA_FLAGS', GOOD)
  xla_flags.check(xla_flags.OF_XLA)
  assert os.environ['XLA_FLAGS'] == GOOD
  monkeypatch.setattr(subprocess, 'run', no_process)
  xla_flags.check(xla_flags.OF_XLA)
  path = tmp_path / 'flags'  # may change
  path.write_text(GOOD)
  monkeypatch.setenv('XLA_FLAGS', str(path))
  with pytest.raises(AssertionError):
    xla_flags.check(xla_flags.OF_XLA)


def test_flags_of_tensorflow(monkeypatch):
  """Every session would abort, whichever command it is of."""
  monkeypatch.setenv('TF_XLA_FLAGS', '--tf_no_such_flag=1')
  with pytest.raises(UserError, match='^TensorFlow .* TF_XLA_FLAGS: .*no_such'):
    xla_flags.check(xla_flags.OF_TENSORFLOW)
  for words in (['tasks', 'synth_glue_cola_v002'], ['doctor']):
    done = subprocess.run(
      [command.PROGRAM, *words], capture_output=True, text=True, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode in (1, 2), printed
    assert 'does not take the environment variable TF_XLA_FLAGS' in printed
  monkeypatch.setenv('TF_XLA_FLAGS', '--tf_xla_auto_jit=0')
  xla_flags.check(xla_flags.OF_TENSORFLOW)
