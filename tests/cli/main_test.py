"""`synth-mtf` itself: its version, its commands, what it says of mistakes."""

import re

import pytest

import synth_mtf
from synth_mtf import cli
from synth_mtf.errors import RunFailed, UserError
from tests.cli.command import run


def shown(capsys, *words) -> str:
  """What a flag prints before it ends the command."""
  with pytest.raises(SystemExit) as end:
    cli.main(words)
  assert end.value.code == 0
  return capsys.readouterr().out


def test_version_and_list_of_commands(capsys):
  version = f'synth-mtf {synth_mtf.__version__}\n'
  assert shown(capsys, '--version') == version
  text = shown(capsys, '--help')
  commands = re.findall(r'^    (\w+)(?: |$)', text, re.MULTILINE)
  assert commands == list(cli.COMMANDS)
  assert run() == (2, '', text)


@pytest.mark.parametrize('name', sorted({*cli.COMMANDS} - {'transformer'}))
def test_each_command_has_help(name, capsys):
  assert f'synth-mtf {name}' in shown(capsys, name, '--help')


def test_help_of_transformer_lists_the_flags_of_t5_and_ours():
  status, out, _ = run('transformer', '--help')
  assert status == 0
  for flag in ('--gin_file', '--tpu', '--model_dir', '--data_dir'):
    assert flag in out


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['trainsformer'], "invalid choice: 'trainsformer'"),
    (['cost', '--siz=tiny'], 'unrecognized arguments'),
    (['demo', '--nothing'], 'unrecognized arguments'),
  ],
)
def test_words_are_not_guessed(words, message, capsys):
  with pytest.raises(SystemExit) as done:
    cli.main(words)
  assert done.value.code == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(
  ('error', 'status', 'message'),
  [
    (UserError('give another one'), 2, 'error: give another one'),
    (RunFailed('see the log'), 1, 'error: see the log'),
    (KeyboardInterrupt(), 130, 'interrupted'),
  ],
)
def test_an_error_is_one_message(monkeypatch, error, status, message):
  def fail(args):
    raise error

  monkeypatch.setattr('synth_mtf.cli.doctor.run', fail)
  assert run('doctor') == (status, '', f'synth-mtf: {message}\n')


def test_an_unknown_error_keeps_its_traceback(monkeypatch):
  monkeypatch.setattr('synth_mtf.cli.doctor.run', lambda args: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    run('doctor')
