"""Saves a checkpoint and ends the run on Ctrl-C or SIGTERM.

Python runs a signal's handler between two of its own instructions, and a step
of TensorFlow is one of them. A thread hears of the signal at once, and can end
the process when a second one comes.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

from tensorflow.compat.v1 import estimator as tf_estimator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds in which signals count as one: `timeout` sends its own to a process
# and to the group that it is in.
_TOGETHER = 1.0


class Stop:
  """Whether a run has been asked to stop.

  Attributes:
    signal: what asked for it; None as long as nothing has.
  """

  def __init__(self) -> None:
    self.signal: Optional[int] = None

  @property
  def status(self) -> int:
    """The exit status of a process that a signal has ended, 130 or 143."""
    return 128 + (self.signal or 0)


class StopHook(tf_estimator.SessionRunHook):
  """Ends training after the present step, which saves a checkpoint."""

  def __init__(self, stop: Stop) -> None:
    self._stop = stop

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Asks to stop once a signal has come."""
    del run_values
    if self._stop.signal is not None:
      run_context.request_stop()


@contextlib.contextmanager
def on_signals(say: Callable[[str], None]) -> Iterator[Stop]:
  """Turns the first signal into a request; the second ends the process.

  One within a second of the first does not count as the second. A signal that
  the process ignores, as under `nohup`, stays ignored. Does nothing outside the
  main thread, which alone may handle signals.

  Args:
    say: shows the user a message, from a thread.

  Yields:
    Whether a signal has come.
  """
  stop = Stop()
  if threading.current_thread() is not threading.main_thread():
    yield stop
    return
  heard, told = socket.socketpair()
  told.setblocking(False)
  wanted = [s for s in _SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]
  before = {s: signal.signal(s, lambda number, frame: None) for s in wanted}
  descriptor = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
  thread = threading.Thread(
    target=_listen, args=(heard, wanted, stop, say), daemon=True
  )
  thread.start()
  try:
    yield stop
  finally:
    signal.set_wakeup_fd(descriptor)
    for number, handler in before.items():
      signal.signal(number, handler)
    told.close()  # which ends the thread
    thread.join()
    heard.close()


def _listen(
  heard: socket.socket,
  wanted: list[signal.Signals],
  stop: Stop,
  say: Callable[[str], None],
) -> None:
  asked = 0.0
  while numbers := heard.recv(1):
    number = numbers[0]
    if number not in wanted:
      continue
    if stop.signal is not None:
      if time.monotonic() - asked < _TOGETHER:
        continue
      os._exit(128 + number)
    asked = time.monotonic()
    stop.signal = number
    name = signal.Signals(number).name
    say(
      f'{name}: saving a checkpoint after this step, then the run ends. A '
      'second signal ends it at once, without a checkpoint.'
    )
