"""Processes of a demo: what they inherit, and what they leave."""

import atexit
import os
import shutil
import subprocess
import sys
import time

import pytest

from synth_mtf import __version__, cli, paths
from synth_mtf.demo import processes
from synth_mtf.errors import RunFailed, UserError

# The demo's own process, at its first stage.
AT_FIRST_STAGE = """
import os, sys, threading
from synth_mtf import cli
from synth_mtf.demo import running
def count(_runner):
  from tensorflow.python.eager import context
  print(len(os.listdir('/proc/self/task')) - threading.active_count())
  print(context.context()._initialized, sys.flags.hash_randomization)
  raise KeyboardInterrupt
running.Runner.run = count
sys.argv[0] = 'synth-mtf'
cli.main(sys.argv[1:])
"""


@pytest.mark.slow  # imports TensorFlow
def test_nothing_of_tensorflow_has_started_when_stages_are_forked(tmp_path):
  data = tmp_path / 'data'
  shutil.copytree(paths.samples_path(), data)
  (data / 'corpus').mkdir()
  (data / 'corpus' / 'text.txt').write_text('\n\n'.join(map(str, range(5000))))
  words = ['demo', '--out', str(tmp_path / 'out'), '--variants', 'random']
  words += ['--data_dir', str(data)]  # a vocabulary is trained on it
  words += ['--mixture', 'synth_super_glue_cb_v102']
  environment = {
    **os.environ,
    'OPENBLAS_NUM_THREADS': '1',
    'PYTHONHASHSEED': '0',
  }
  done = subprocess.run(
    [sys.executable, '-c', AT_FIRST_STAGE, *words],
    env=environment,
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert '\n0\nFalse 0\n' in done.stdout, done.stdout + done.stderr


@pytest.fixture
def forks(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['synth-mtf'])
  assert processes.can_fork() == (sys.platform != 'darwin')


def refuse(message):
  raise UserError(message)


def test_a_result_comes_from_another_process(forks):
  assert processes.result_of(os.getpid) != os.getpid()
  with pytest.raises(UserError, match='^no such file$'):
    processes.result_of(refuse, 'no such file')
  with pytest.raises(RunFailed, match='ended with status 7'):
    processes.result_of(os._exit, 7)  # noqa: SLF001


def remove_at_exit(files):
  for file in files:
    atexit.register(os.remove, file)
  return 0


def test_a_fork_does_what_it_has_registered_for_its_exit(forks, tmp_path):
  of_this_process = (tmp_path / 'this').touch
  atexit.register(of_this_process)
  file = tmp_path / 'file'
  file.touch()
  assert processes.result_of(remove_at_exit, [file]) == 0
  assert not file.exists()
  file.touch()
  process = processes.Running(remove_at_exit, [str(file)], {}, [])
  assert process.status() == 0
  process.close()
  assert not list(tmp_path.iterdir())
  atexit.unregister(of_this_process)


def test_other_programs_do_not_fork():
  assert processes.result_of(os.getpid) == os.getpid()


@pytest.mark.parametrize('is_command', [True, False])
def test_a_command_runs_with_and_without_forks(monkeypatch, is_command):
  if is_command:
    monkeypatch.setattr(sys, 'argv', ['synth-mtf'])
  process = processes.Running(cli.main, ['--version'], {}, [])
  lines = []
  while (some := process.lines()) is not None:
    lines += some
  assert process.status() == 0
  assert lines == [f'synth-mtf {__version__}']
  process.close()


def print_for_a_minute(_words):
  for _ in range(600):
    print('step', flush=True)
    time.sleep(0.1)
  return 0


def test_a_command_does_not_outlive_who_reads_its_output(forks):
  process = processes.Running(print_for_a_minute, [], {}, [])
  other = processes.Running(print_for_a_minute, [], {}, [process])
  process.reader.close()  # as the death of the demo does
  assert process.status() == 1
  other.close()
