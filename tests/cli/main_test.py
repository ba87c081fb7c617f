"""`synth-mtf` itself: its version, and what it says without a command."""

import re
import subprocess

import pytest

import synth_mtf
from synth_mtf import cli
from tests.run.process_test import as_command

pytestmark = pytest.mark.slow  # starts processes

MAIN = (
  'import sys\n'
  'from synth_mtf.cli import main\n'
  'try:\n'
  '  status = main()\n'
  'finally:\n'
  '  assert "tensorflow" not in sys.modules\n'
  'sys.exit(status)\n'
)


def listed(text: str) -> list[str]:
  """The commands that a help text lists, in its order."""
  return re.findall(r'^    (\w+)(?: |$)', text, re.MULTILINE)


def as_script(tmp_path, *words: str) -> subprocess.CompletedProcess[str]:
  """Runs `synth-mtf` in a process that must not import TensorFlow."""
  return as_command(tmp_path, MAIN, *words)


def test_version_needs_no_tensorflow(tmp_path):
  done = as_script(tmp_path, '--version')
  assert done.returncode == 0, done.stderr
  assert done.stdout == f'synth-mtf {synth_mtf.__version__}\n'


def test_without_a_command_lists_the_commands(tmp_path):
  done = as_script(tmp_path)
  assert done.returncode == 2
  assert done.stdout == ''
  assert done.stderr.startswith('usage: synth-mtf ')
  assert listed(done.stderr) == list(cli.COMMANDS)


def test_help_lists_the_same(capsys):
  with pytest.raises(SystemExit) as end:
    cli.main(['--help'])
  assert end.value.code == 0
  assert listed(capsys.readouterr().out) == list(cli.COMMANDS)


def test_an_unknown_command_is_refused(capsys):
  with pytest.raises(SystemExit) as end:
    cli.main(['trainsformer'])
  assert end.value.code == 2
  assert "invalid choice: 'trainsformer'" in capsys.readouterr().err
