"""Signals: the first one asks, the second one ends."""

import subprocess
import sys
import time

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.slow  # starts processes

# Like a step of TensorFlow, this holds the main thread in C, for some seconds,
# and no signal cuts it short, as it would a sleep.
LOOP = """
import hashlib, signal, sys
from synth_mtf.run import stopping
with stopping.on_signals(lambda text: print(text, flush=True)) as stop:
  print('ready', flush=True)
  hashlib.pbkdf2_hmac('sha256', b'', b'', {seconds} * 10**6)
  while stop() is None:
    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**5)
print('stopped', stop(), signal.getsignal(signal.SIGINT), flush=True)
sys.exit(128 + stop())
"""


# Like an import or the making of a picture, which Ctrl-C ends only afterwards.
ACKNOWLEDGED = """
import hashlib, time
from synth_mtf.run import stopping
say = lambda text: print(text, time.monotonic(), flush=True)
with stopping.acknowledged(say, 'ending.'):
  try:
    print('ready', flush=True)
    hashlib.pbkdf2_hmac('sha256', b'', b'', {seconds} * 10**6)
  except KeyboardInterrupt:
    print('interrupted', time.monotonic(), flush=True)
"""


# However late the second signal is, it is within a second of the first.
STILL = 'import threading, time\ntime.monotonic = lambda: 0.0\n'


def start(seconds, before='', loop=LOOP):
  process = subprocess.Popen(
    [sys.executable, '-c', before + loop.format(seconds=seconds)],
    cwd=CHECKOUT,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  )
  assert process.stdout is not None
  assert process.stdout.readline() == 'ready\n'
  return process


@pytest.mark.parametrize('name, number', [('SIGINT', 2), ('SIGTERM', 15)])
def test_the_first_asks(name, number):
  process = start(2, STILL)
  process.send_signal(number)
  said = process.stdout.readline()
  assert said.startswith(f'{name}: saving a checkpoint')
  # As `timeout` sends it: to the process, and to the group that it is in.
  process.send_signal(number)
  (stopped,) = process.stdout.read().splitlines()
  assert stopped.startswith(f'stopped {number} <built-in function default_int')
  assert process.wait() == 128 + number


def test_it_is_acknowledged_before_it_has_an_effect():
  process = start(30, loop=ACKNOWLEDGED)
  time.sleep(1)  # it computes now, and no longer prints
  process.send_signal(2)
  said, interrupted = process.stdout.read().splitlines()
  *words, early = said.split()
  assert words == ['SIGINT:', 'ending.']
  reason, late = interrupted.split()
  assert reason == 'interrupted'
  assert float(late) - float(early) > 0.3
  assert process.wait() == 0


def test_the_second_ends_at_once_in_the_middle_of_a_step():
  process = start(60)
  process.send_signal(2)
  assert process.stdout.readline().startswith('SIGINT')
  time.sleep(1.5)
  process.send_signal(15)
  assert process.wait(300) == 143, 'not the status of the first'
  assert 'stopped' not in process.stdout.read()


def test_what_is_ignored_stays_ignored():
  process = start(
    1, 'import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n'
  )
  process.send_signal(2)
  time.sleep(2)
  assert process.poll() is None
  process.send_signal(15)
  assert process.stdout.readline().startswith('SIGTERM')
  assert process.wait() == 143
