"""Work in processes of their own: answers, logs, deaths."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from synth_mtf.demo import workers
from synth_mtf.errors import UserError

pytestmark = pytest.mark.slow  # starts processes

HERE = 'tests.demo.workers_test'
CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module', autouse=True)
def server():
  workers.prepare([HERE])


def work(numbers, report):
  for number in numbers:
    report(number)
  print('said by Python')
  os.write(2, b'said by C++\n')
  return sum(numbers)


def make_mistake(report):
  raise UserError('the file is not there')


def crash(report):
  raise ZeroDivisionError('one by none\nmore')


def die(report):
  os.kill(os.getpid(), signal.SIGKILL)


def note_pid_and_wait(path, report):
  pathlib.Path(path).write_text(str(os.getpid()))
  time.sleep(300)


def test_it_returns_reports_and_logs(tmp_path, capfd):
  log = tmp_path / 'work.log'
  reports: list[int] = []
  answer = workers.run(
    f'{HERE}:work', [1, 2, 3], log=log, on_report=reports.append
  )
  assert answer == 6
  assert reports == [1, 2, 3]
  assert 'said by Python' in log.read_text()
  assert 'said by C++' in log.read_text()
  assert 'said by' not in ''.join(capfd.readouterr())


@pytest.mark.parametrize(
  'function, error, message',
  [
    ('make_mistake', UserError, '^the file is not there$'),
    ('crash', workers.WorkerFailed, '^ZeroDivisionError: one by none$'),
    ('die', workers.WorkerFailed, 'killed by signal 9'),
  ],
)
def test_failures(tmp_path, function, error, message):
  log = tmp_path / 'work.log'
  with pytest.raises(error, match=message):
    workers.run(f'{HERE}:{function}', log=log)
  assert ('Traceback' in log.read_text()) == (function == 'crash')


def test_a_worker_dies_with_a_command_that_is_killed(tmp_path):
  pid_file = tmp_path / 'pid'
  command = subprocess.Popen(
    [
      sys.executable,
      '-c',
      'import sys; sys.argv = ["synth-mtf"]; import pathlib;'
      'from synth_mtf.demo import workers;'
      f'workers.run("{HERE}:note_pid_and_wait", "{pid_file}",'
      f' log=pathlib.Path("{tmp_path}/log"))',
    ],
    cwd=CHECKOUT,
  )
  pid = int(wait_for(lambda: pid_file.exists() and pid_file.read_text()))
  assert alive(pid)
  command.kill()
  command.wait()
  wait_for(lambda: not alive(pid), seconds=10)


def alive(pid):
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  return True


def wait_for(condition, seconds=120):
  deadline = time.monotonic() + seconds
  while time.monotonic() < deadline:
    if value := condition():
      return value
    time.sleep(0.1)
  raise AssertionError('waited in vain')
