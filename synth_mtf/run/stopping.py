"""Stops a run on Ctrl-C or SIGTERM, after saving a checkpoint.

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
  handled = [
    number
    for number in (signal.SIGINT, signal.SIGTERM)
    if signal.getsignal(number) is not signal.SIG_IGN
  ]

  def listen() -> None:
    first_time = 0.0
    while True:
      data = reader.recv(1)
      if not data:  # the writer is closed
        return
      number = data[0]
      if number not in handled:
        continue
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

  reader, writer = socket.socketpair()
  writer.setblocking(False)
  # The handlers do nothing: Python writes each signal's number to the socket.
  before = {n: signal.signal(n, lambda number, frame: None) for n in handled}
  descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
  thread = threading.Thread(target=listen, daemon=True)
  thread.start()
  try:
    yield lambda: received[0] if received else None
  finally:
    signal.set_wakeup_fd(descriptor)
    for number, handler in before.items():
      signal.signal(number, handler)
    writer.close()  # ends the thread
    thread.join()
    reader.close()
