"""`synth-mtf transformer`: what the command itself adds."""

import argparse
import os
import pathlib
import subprocess
import sys

import pytest

from synth_mtf.cli import transformer


def test_help_lists_the_flags_of_t5_and_ours(capsys):
  assert transformer.run(argparse.Namespace(flags=['--help'])) == 0
  printed = capsys.readouterr().out
  for flag in ('--gin_file', '--tpu', '--model_dir', '--data_dir'):
    assert flag in printed


@pytest.mark.slow  # a process of its own
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
