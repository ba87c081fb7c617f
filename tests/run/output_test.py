"""What the user sees, and what goes to the log."""

import io
import os
import subprocess
import sys
import time

import pytest

from synth_mtf.run import output
from synth_mtf.run.output import Console, duration
from tests.conftest import CHECKOUT

PROGRAM = """
import os, subprocess, sys
sys.argv[0] = 'synth-mtf'
from synth_mtf.run import output
with output.to_log(sys.argv[1]):
  print('said by Python')
  print('to stderr by Python', file=sys.stderr)
  os.write(2, b'said by C++\\n')
  subprocess.run(['echo', 'said by a child'], check=True)
  output.console().line('for the person')
print('again')
"""


class Terminal(io.StringIO):
  def isatty(self):
    return True


@pytest.fixture
def clock(monkeypatch):
  now = [100.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  monkeypatch.setenv('TERM', 'xterm')
  return now


def test_plain_lines_come_now_and_then(clock):
  stream = io.StringIO()
  console = Console(stream)
  console.start('pretrain')
  for second in range(1, 26):
    clock[0] = 100.0 + second
    console.update(f'step {second}')
  console.finish('done')
  assert stream.getvalue().splitlines() == [
    'pretrain  ...',
    'pretrain  step 10',
    'pretrain  step 20',
    'pretrain  done',
  ]


def test_a_terminal_line_is_rewritten(clock):
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  for tenth in range(1, 4):
    clock[0] += 0.1001
    console.update(f'step {tenth}')
  console.finish('done')
  shown = stream.getvalue().split('\r\x1b[2K')
  assert shown[1:] == ['pretrain  ...', 'pretrain  step 2', 'pretrain  done\n']


@pytest.mark.parametrize('columns', [20, 80])
def test_what_is_rewritten_is_cut_to_one_line(clock, monkeypatch, columns):
  monkeypatch.setenv('COLUMNS', str(columns))
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  clock[0] += 1
  console.update('step 1 ' * 40)
  console.line('a line that stays is whole ' * 10)
  _, _, cut, whole = stream.getvalue().split('\r\x1b[2K')
  assert len(cut) == columns - 1
  assert cut.endswith('\u2026')
  assert whole == 'a line that stays is whole ' * 10 + '\n'


def test_a_terminal_that_cannot_rewrite_gets_plain_lines(clock, monkeypatch):
  monkeypatch.setenv('TERM', 'dumb')
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  console.update('step 1')
  console.finish('done')
  assert stream.getvalue() == 'pretrain  ...\npretrain  done\n'


def test_an_error_does_not_run_into_what_is_shown(clock):
  stream = Terminal()
  console = Console(stream)
  console.start('pretrain')
  console.leave()
  console.leave()
  assert stream.getvalue().endswith('pretrain  ...\n')
  assert stream.getvalue().count('\n') == 1


@pytest.mark.parametrize(
  'seconds, text',
  [
    (0.4, '0 s'),
    (59.6, '1 min 00 s'),
    (185, '3 min 05 s'),
    (7800, '2 h 10 min'),
  ],
)
def test_duration(seconds, text):
  assert duration(seconds) == text


@pytest.mark.slow  # starts a process
def test_all_goes_to_the_log_but_what_is_for_the_user(tmp_path):
  log = tmp_path / 'log'
  done = subprocess.run(
    [sys.executable, '-Wignore', '-c', PROGRAM, log],
    cwd=CHECKOUT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert sorted(log.read_text().splitlines()) == [
    'said by C++',
    'said by Python',
    'said by a child',
    'to stderr by Python',
  ]
  assert done.stdout == 'again\n'
  assert done.stderr == 'for the person\n'


def test_an_error_leaves_the_streams_as_they_were(tmp_path, capfd):
  with pytest.raises(ValueError), output.to_log(str(tmp_path / 'log')):
    assert output.console_beside_log() is output.console()
    int('no number')
  assert output.console_beside_log() is None
  os.write(2, b'seen\n')
  assert capfd.readouterr().err == 'seen\n'


def test_what_was_said_before_there_was_a_log_begins_it(tmp_path, capfd):
  with output.kept():
    os.write(1, b'early\n')
  log = tmp_path / 'log'
  log.write_text('of another run\n')
  with output.to_log(str(log)):
    os.write(1, b'late\n')
  assert log.read_text() == 'of another run\nearly\nlate\n'
  assert capfd.readouterr().out == ''
