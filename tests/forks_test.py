"""A command in a fork is like a process of Python."""

import os
import signal
import subprocess
import sys

import pytest

from tests import forks

# What a program gets, and how it ends.
PROGRAM = """#!{python}
import json, os, signal, sys, time
variables = sorted(os.environ.items())
print(json.dumps([sys.argv, os.getcwd(), variables, sys.stdin.read()]))
os.write(2, b'as C++ writes')
end = sys.argv[1]
if end == 'wait':
  print('waiting', flush=True)
  time.sleep(600)
if end == 'ask':
  sys.exit(repr('decimal' in sys.modules))
if end.startswith('-'):
  sys.stdout.flush()
  os.kill(os.getpid(), -int(end))
sys.exit(int(end))
"""


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
  folder = tmp_path_factory.mktemp('bin')
  program = folder / 'synth-mtf'
  program.write_text(PROGRAM.format(python=sys.executable))
  program.chmod(0o755)
  (folder / 'python').symlink_to(sys.executable)
  return folder


@pytest.fixture(scope='module')
def forked(installed):
  python, env = installed / 'python', {**os.environ, 'OF_THE_SERVER': '1'}
  with forks.programs('decimal', python=python, env=env) as folder:
    yield folder / 'synth-mtf'


def run(program, *words, **options):
  return subprocess.run(
    [program, *words], capture_output=True, text=True, check=False, **options
  )


@pytest.mark.parametrize('end', ['0', '3', '-9', '-15'])
def test_it_gets_and_leaves_what_a_process_does(
  installed, forked, tmp_path, end
):
  given = {
    'cwd': tmp_path,
    'env': {**os.environ, 'MINE': 'é', 'PYTHONHASHSEED': '0'},
    'input': 'typed',
  }
  words = end, 'two words', ''
  found, expected = (
    run(program, *words, **given)
    for program in (forked, installed / forked.name)
  )
  assert found.returncode == expected.returncode == int(end)
  assert found.stdout == expected.stdout
  assert found.stderr == expected.stderr == 'as C++ writes'


def test_only_one_of_the_same_environment_is_forked(forked):
  for changed, imported in (
    ({}, True),
    ({'MINE': '1'}, True),
    ({'PYTHONHASHSEED': '0'}, True),
    ({'PYTHONHASHSEED': '1'}, False),
    ({'JAX_PLATFORMS': 'cpu'}, False),
    ({'TF_CPP_MIN_LOG_LEVEL': '1'}, False),
  ):
    done = run(forked, 'ask', env={**os.environ, **changed}, input='')
    assert done.stderr.endswith(f'{imported}\n'), changed


def start(program):
  process = subprocess.Popen(
    [program, 'wait'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
  )
  assert process.stdout is not None
  process.stdout.readline()
  assert process.stdout.readline() == b'waiting\n'
  return process


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_it(forked, number):
  process = start(forked)
  process.send_signal(number)
  assert process.wait(60) == -number


def test_it_dies_with_who_stands_for_it(forked):
  process = start(forked)
  process.kill()
  assert process.stdout.read() == b'', 'the fork had it open, too'


def test_a_server_that_is_gone_is_an_error(installed):
  with forks.programs('no_such_module', python=installed / 'python') as folder:
    done = run(folder / 'synth-mtf', '0', timeout=60)
  assert done.returncode == 1


def test_the_output_of_a_command_is_in_its_log(installed, tmp_path):
  log = tmp_path / 'log'
  python = installed / 'python'
  with forks.commands(log, 'decimal', python=python, cwd=tmp_path) as command:
    command('synth-mtf', '0', MINE='given')
    assert '"given"' in log.read_text() and str(tmp_path) in log.read_text()
    with pytest.raises(forks.Failed, match='(?s)synth-mtf.*as C.. writes'):
      command('synth-mtf', '3')
