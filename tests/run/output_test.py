"""What the user sees, and what goes to the log."""

import io
import os
import re
import subprocess
import sys
import time

import pytest

from synth_mtf.errors import UserError
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
CLEAR = '\r\x1b[2K'


class Terminal(io.StringIO):
  def isatty(self):
    return True


@pytest.fixture
def clock(monkeypatch):
  now = [100.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  monkeypatch.setenv('TERM', 'xterm')
  return now


@pytest.mark.parametrize(
  ('stream', 'term', 'seconds', 'updates', 'shown'),
  [
    (io.StringIO, 'xterm', 1, 25, '-...\n-step 10\n-step 20\n-done\n'),
    (Terminal, 'xterm', 0.1001, 3, f'{CLEAR}-...{CLEAR}-step 2{CLEAR}-done\n'),
    (Terminal, 'dumb', 0.1001, 3, '-...\n-done\n'),
  ],
)
def test_updates_come_now_and_then(
  clock, monkeypatch, stream, term, seconds, updates, shown
):
  monkeypatch.setenv('TERM', term)
  console = Console(stream := stream())
  console.start('task')
  for number in range(1, updates + 1):
    clock[0] += seconds
    console.update(f'step {number}')
  console.finish('done')
  assert stream.getvalue() == shown.replace('-', 'task  ')


def test_a_text_that_stands_is_followed_by_its_age(monkeypatch, tmp_path):
  monkeypatch.setenv(output.INTERVAL, '0.1')
  with open(tmp_path / 'out', 'w') as stream:
    console = Console(stream)
    console.start('task', 'build ...')
    _wait_for(lambda: (tmp_path / 'out').read_text().count('\n') > 2)
    console.finish('done')
    with console.passing('load ...'):
      _wait_for(lambda: 'load' in (tmp_path / 'out').read_text())
    ended = (tmp_path / 'out').read_text()
    console.update('step 1')  # not one that stands
    time.sleep(0.3)
  first, *rest = ended.splitlines()
  assert first == 'task  build ...'
  aged = r'task  build \.\.\.  \d+ s'
  assert all(re.fullmatch(aged, line) for line in rest[:2])
  after = '\n'.join(rest[rest.index('task  done') :])
  assert re.search(r'^load \.\.\.  \d+ s$', after, re.M)
  assert (tmp_path / 'out').read_text() == f'{ended}task  step 1\n'


def test_age_is_shown_while_output_is_kept(monkeypatch, capfd):
  monkeypatch.setenv(output.INTERVAL, '0.1')
  shown = []

  def has_age():
    shown.append(capfd.readouterr().out)
    return re.search(r'  \d+ s\n', ''.join(shown))

  with open(1, 'w', closefd=False) as stdout:
    console = Console(stdout)
    with console.task('load'), output.kept():
      _wait_for(has_age)
  assert re.match(r'load  \.\.\.\nload  \.\.\.  \d+ s\n', ''.join(shown))


def _wait_for(condition):
  end = time.monotonic() + 300
  while not condition():
    assert time.monotonic() < end
    time.sleep(0.05)


def test_the_interval_is_a_number(monkeypatch):
  monkeypatch.setenv(output.INTERVAL, '')
  Console(io.StringIO())
  monkeypatch.setenv(output.INTERVAL, '10s')
  with pytest.raises(UserError, match="= '10s': expected a number of seconds"):
    Console(io.StringIO())


@pytest.mark.parametrize('columns', [20, 80])
@pytest.mark.parametrize('word', ['step 1 ', '\u6b65 1', '\x1b[9m'])
def test_what_is_rewritten_is_cut_to_one_line(
  clock, monkeypatch, columns, word
):
  """A wide character takes two columns, and an escaped one what is shown."""
  monkeypatch.setenv('COLUMNS', str(columns))
  stream = Terminal()
  console = Console(output.Printable(stream))
  console.start('')
  clock[0] += 1
  console.update(word * 40)
  console.line('a line that stays is whole ' * 10)
  _, _, cut, whole = stream.getvalue().split(CLEAR)
  taken = len(cut) + cut.count('\u6b65')
  assert columns - 2 <= taken <= columns - 1
  assert cut.endswith('\u2026')
  assert whole == 'a line that stays is whole ' * 10 + '\n'


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


@pytest.mark.parametrize(
  'encoding, written', [('ascii', b'\\xe7\\u20ac'), ('latin-1', b'\xe7\\u20ac')]
)
def test_letters_that_a_stream_does_not_have(encoding, written):
  stream = io.TextIOWrapper(io.BytesIO(), encoding)
  output.Printable(stream).write('\u00e7\u20ac')
  stream.flush()
  assert stream.buffer.getvalue() == written


def test_control_characters_are_shown():
  stream = io.StringIO()
  print('a\x1b[2Jb\x9bc\rd\x07\te', file=output.Printable(stream))
  assert stream.getvalue() == 'a\\u001b[2Jb\\u009bc\\u000dd\\u0007\te\n'


def test_a_name_cannot_pass_as_our_own_sequences(clock):
  stream = Terminal()
  Console(output.Printable(stream)).line(f'{CLEAR}\x1b[1mDone\x1b[0m \ud800')
  assert stream.getvalue() == (
    f'{CLEAR}\\u000d\\u001b[2K\\u001b[1mDone\\u001b[0m \\ud800\n'
  )


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


_FULL = """
import contextlib, sys
sys.argv[0] = 'synth-mtf'
from synth_mtf.run import output
with output.to_log('/dev/full'):
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError):
      print('  raise value', file=stream)
print('after', file=sys.stderr)
"""


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='of Linux')
def test_what_a_full_disk_did_not_take_is_not_shown():
  """The end of a traceback appeared among the lines of the run."""
  done = subprocess.run(
    [sys.executable, '-c', _FULL],
    capture_output=True,
    text=True,
    check=True,
    env={**os.environ, 'PYTHONUNBUFFERED': ''},
  )
  assert (done.stdout, done.stderr) == ('', 'after\n')


def test_what_was_said_before_there_was_a_log_begins_it(tmp_path, capfd):
  printed = output.Kept()
  with output.kept(printed):
    os.write(1, b'early\n')
  log = tmp_path / 'log'
  log.write_text('of another run\n')
  with pytest.raises(ValueError), output.to_log(str(log), printed):
    assert output.console_beside_log() is output.console()
    os.write(1, b'late\n')
    int('no number')
  output.console_beside_log().line('unseen')
  assert log.read_text() == 'of another run\nearly\nlate\n'
  os.write(2, b'seen\n')
  assert capfd.readouterr() == ('', 'seen\n')
