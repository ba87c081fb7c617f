"""How a process of the command starts."""

import re
import subprocess
import sys

import pytest

from synth_mtf import paths
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.slow  # starts processes

MAIN = 'import sys\nfrom synth_mtf.cli import main\nsys.exit(main())\n'


def as_command(tmp_path, body, *words, interpreter=(), **environment):
  """Runs Python code as the console script `synth-mtf` would run."""
  script = tmp_path / 'synth-mtf'
  script.write_text(body)
  return subprocess.run(
    [sys.executable, *interpreter, script, *words],
    capture_output=True,
    text=True,
    cwd=tmp_path,
    env={
      'PYTHONPATH': str(CHECKOUT),
      'SYNTH_MTF_PROGRESS_SECONDS': '1000',
      **environment,
    },
    timeout=600,
    check=False,
  )


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
  assert paths.is_command() is is_command


@pytest.mark.parametrize(
  'words',
  [
    'doctor --vocabulary=bytes',
    'transformer --model_dir=my_run',
  ],
)
def test_tensorflow_and_absl_print_nothing(tmp_path, words):
  done = as_command(tmp_path, MAIN, *words.split())
  ours = ('Log: ', 'prepare ', 'synth-mtf: error: no mesh is set')
  lines = done.stderr.splitlines()
  assert not [line for line in lines if not line.startswith(ours)]
  assert bool(lines) == bool(done.returncode) == words.endswith('my_run')
  assert not re.search('absl|oneDNN|TF-TRT|pkg_resources', done.stdout)


def test_help_needs_nothing_that_is_installed(tmp_path):
  done = as_command(
    tmp_path,
    'import sys\n'
    'before = set(sys.modules)\n'
    'from synth_mtf.cli import COMMANDS, main\n'
    'try:\n'
    '  main(["--help"])\n'
    'finally:\n'
    '  files = [getattr(sys.modules[name], "__file__", None) or ""\n'
    '           for name in set(sys.modules) - before]\n'
    '  assert not [file for file in files if "site-packages" in file]\n'
    '  print(*COMMANDS, sep="\\n    ")\n',
  )
  assert done.returncode == 0, done.stderr
  for command in ('demo', 'transformer', 'doctor'):
    assert done.stdout.count(f'    {command}') >= 1


def test_a_command_without_its_host_says_so_in_one_message(tmp_path):
  done = as_command(
    tmp_path,
    MAIN,
    'transformer',
    '--model_dir=run',
    '--gin_file=sizes/tiny.gin',
    interpreter=['-S'],  # no site-packages: nothing is installed
    PYTHONHASHSEED='0',
  )
  assert done.returncode == 2
  assert done.stderr.startswith('synth-mtf: error: the host stack cannot be')
  assert 'synth-mtf doctor' in done.stderr


@pytest.mark.parametrize(
  ('environment', 'expected'), [({}, '0'), ({'PYTHONHASHSEED': '7'}, '7')]
)
def test_fix_hash_seed_starts_the_command_again(
  tmp_path, environment, expected
):
  done = as_command(
    tmp_path,
    'import os, sys\n'
    'from synth_mtf.run import process\n'
    'process.fix_hash_seed()\n'
    'print(os.environ["PYTHONHASHSEED"], sys.argv[1:], '
    'not sys.flags.hash_randomization)\n',
    'a b',
    '--c=d',
    **environment,
  )
  assert done.stdout == f"{expected} ['a b', '--c=d'] {expected == '0'}\n"
