"""A command that runs in a fork of a server of `tests.forks`.

For who starts it, this process is the command: the fork has its arguments,
folder, environment and open files, gets its signals, and dies with it; then
this process ends as the fork did. It imports little, to start at once.
"""

import contextlib
import json
import os
import signal
import socket

_FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def main(address: str, program: str, *words: str) -> None:
  """Runs an installed program; does not return."""
  ignored = [n for n in _FORWARDED if signal.getsignal(n) is signal.SIG_IGN]
  request = os.memfd_create('request')
  with open(request, 'w', encoding='utf-8', closefd=False) as file:
    content = {
      'words': [program, *words],
      'folder': os.getcwd(),
      'environment': dict(os.environ),
      'ignored': ignored,
    }
    json.dump(content, file)
  with socket.socket(socket.AF_UNIX) as server:

    def forward(number, _):
      with contextlib.suppress(BrokenPipeError):  # it has just ended
        server.send(bytes([number]))

    server.connect(address)
    socket.send_fds(server, [b'\0'], [0, 1, 2, request])
    for number in {*_FORWARDED} - {*ignored}:
      signal.signal(number, forward)
    status = json.loads(b''.join(iter(lambda: server.recv(100), b'')))
  if status is None:  # the server cannot give it this environment
    os.execv(program, [program, *words])
  if status < 0:
    with contextlib.suppress(OSError):  # SIGKILL has no handler
      signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
  os._exit(status)
