"""`synth-mtf` itself: its version, its commands, what it says of mistakes."""

import importlib
import re
import subprocess

import pytest

import synth_mtf
from synth_mtf import cli
from synth_mtf.errors import UserError
from tests.cli.command import run
from tests.run.process_test import as_command

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


@pytest.mark.slow  # a process of its own
def test_version_needs_no_tensorflow(tmp_path):
  done = as_script(tmp_path, '--version')
  assert done.returncode == 0, done.stderr
  assert done.stdout == f'synth-mtf {synth_mtf.__version__}\n'


@pytest.mark.slow  # a process of its own
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


@pytest.mark.parametrize('name', cli.COMMANDS)
def test_each_command_says_what_it_is(name, capsys):
  command = importlib.import_module(f'synth_mtf.cli.{name}')
  words = cli.parser().format_help().split()
  assert ' '.join(command.SUMMARY.split()) in ' '.join(words)
  if name != 'transformer':  # its --help is T5's
    with pytest.raises(SystemExit) as done:
      cli.main([name, '--help'])
    assert done.value.code == 0
    assert f'synth-mtf {name}' in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys):
  with pytest.raises(SystemExit) as end:
    cli.main(['trainsformer'])
  assert end.value.code == 2
  assert "invalid choice: 'trainsformer'" in capsys.readouterr().err


@pytest.mark.parametrize(
  'words', [['cost', '--siz=tiny'], ['demo', '--nothing']]
)
def test_flags_are_not_guessed(words, capsys):
  with pytest.raises(SystemExit) as done:
    cli.main(words)
  assert done.value.code == 2
  assert 'unrecognized arguments' in capsys.readouterr().err


def test_a_mistake_is_told_in_one_message(monkeypatch):
  def fail(args):
    raise UserError('give another one')

  monkeypatch.setattr('synth_mtf.cli.doctor.run', fail)
  assert run('doctor') == (2, '', 'synth-mtf: error: give another one\n')


def test_what_is_no_mistake_of_the_user_keeps_its_traceback(monkeypatch):
  monkeypatch.setattr('synth_mtf.cli.doctor.run', lambda args: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    run('doctor')
