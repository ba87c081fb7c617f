"""Acknowledges signals at once, and stops training after saving a checkpoint.

Python runs signal handlers only between bytecode instructions, and a TensorFlow
step is a single one. A thread is notified immediately, and can end the process
on a second signal.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from synth_mtf.errors import Terminated

_GRACE = 10  # seconds after SIGTERM, which a machine may send before it stops


@contextlib.contextmanager
def on_signals(
  say: Callable[[str], None],
) -> Iterator[Callable[[], int | None]]:
  """Turns the first signal into a stop request; the second ends the process.

  A signal within a second of the first does not count as the second, because
  `timeout` signals both a process and its process group. Signals that the
  process ignores, as under `nohup`, stay ignored. Calls `say` from a thread.

  Yields:
    A function that returns the signal received, or None.
  """
  received: list[int] = []
  first_time = 0.0
  handled = [
    number
    for number in (signal.SIGINT, signal.SIGTERM)
    if signal.getsignal(number) is not signal.SIG_IGN
  ]

  def receive(number: int) -> None:
    nonlocal first_time
    if number not in handled:
      return
    if not received:
      first_time = time.monotonic()
      received.append(number)
      say(
        f'{signal.Signals(number).name}: saving a checkpoint after this '
        'step, then the run ends. A second signal ends it at once, without a '
        'checkpoint.'
      )
    elif time.monotonic() - first_time >= 1:
      say('Ended at once; the last saved checkpoint is intact.')
      os._exit(128 + number)

  # The handlers do nothing: `receive` gets each signal's number.
  before = {n: signal.signal(n, lambda number, frame: None) for n in handled}
  try:
    with _received_by(receive):
      yield lambda: received[0] if received else None
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


@contextlib.contextmanager
def acknowledged(say: Callable[[str], None], text: str) -> Iterator[None]:
  """Says at once that a signal was received; its handler may run much later.

  SIGTERM raises `Terminated`, unless the process handles or ignores it already.
  If the main thread does not notice, the process ends some seconds later.

  Args:
    say: shows a line; called from a thread.
    text: what happens now.
  """
  is_said = False
  before = signal.getsignal(signal.SIGTERM)
  is_ours = before == signal.SIG_DFL
  end = threading.Timer(_GRACE, os._exit, [128 + signal.SIGTERM])
  end.daemon = True

  def receive(number: int) -> None:
    nonlocal is_said
    is_handled = signal.getsignal(number) not in (
      signal.SIG_IGN,
      signal.SIG_DFL,
    )
    if not is_handled or is_said:
      return
    is_said = True
    say(f'{signal.Signals(number).name}: {text}')
    if is_ours and number == signal.SIGTERM:
      end.start()

  if is_ours:
    signal.signal(signal.SIGTERM, _terminate)
  try:
    with _received_by(receive):
      yield
  finally:
    end.cancel()
    if is_ours:
      signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: Any) -> None:
  raise Terminated


@contextlib.contextmanager
def _received_by(receive: Callable[[int], None]) -> Iterator[None]:
  """Calls a function from a thread with the number of each handled signal."""

  def listen() -> None:
    while data := reader.recv(1):  # nothing once the writer is closed
      receive(data[0])

  reader, writer = socket.socketpair()
  writer.setblocking(False)
  # Python writes the number of each signal that has a handler to the socket.
  descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
  thread = threading.Thread(target=listen, daemon=True)
  thread.start()
  try:
    yield
  finally:
    signal.set_wakeup_fd(descriptor)
    writer.close()  # ends the thread
    thread.join()
    reader.close()
