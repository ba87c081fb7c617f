"""Runs steps in separate processes, which take turns.

Each framework has its own environment, and checkouts cannot share a process. A
worker builds its steps, reports that it is ready and then runs the step named
on each line of its input. This module imports only the standard library, so
that any environment can run it.
"""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

HERE = pathlib.Path(__file__).resolve().parent.parent
_READY = 'ready'
_PEAK = 'peak'


def serve(steps: Mapping[str, Callable[[], object]]) -> None:
  """Answers the lines of standard input until it ends.

  The answer to a name is the wall-clock and processor seconds of its step; the
  answer to `peak` is the peak memory of the process in bytes. Each step first
  runs twice to warm up.
  """
  for step in steps.values():
    step()
    step()
  print(_READY, flush=True)
  for line in sys.stdin:
    name = line.rstrip('\n')
    if name == _PEAK:
      status = pathlib.Path('/proc/self/status').read_text()
      (peak,) = (x for x in status.splitlines() if x.startswith('VmHWM'))
      print(int(peak.split()[1]) * 1024, flush=True)
      continue
    wall, cpu = time.perf_counter(), time.process_time()
    steps[name]()
    print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)


class Worker:
  """A process that calls `serve`."""

  def __init__(self, command: Sequence[str], checkout: str = '') -> None:
    """Starts a worker on a checkout's synth_mtf; waits until it is ready."""
    self._command = ' '.join(command)
    path = [str(HERE), os.environ.get('PYTHONPATH', '')]
    self._process = subprocess.Popen(
      list(command),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      cwd=HERE,
      env={
        **os.environ,
        'PYTHONPATH': os.pathsep.join(filter(None, path)),
        'BENCHMARKED_CHECKOUT': os.path.abspath(checkout or HERE),
      },
    )
    self._answer(_READY)

  def seconds(self, name: str) -> tuple[float, float]:
    """Runs a step; returns its wall-clock and processor seconds."""
    wall, cpu = self._ask(name).split()
    return float(wall), float(cpu)

  def peak(self) -> int:
    """Returns the peak memory of the process in bytes."""
    return int(self._ask(_PEAK))

  def close(self) -> None:
    """Closes its input and waits for it to exit."""
    self._process.communicate()

  def _ask(self, line: str) -> str:
    assert self._process.stdin
    self._process.stdin.write(line + '\n')
    self._process.stdin.flush()
    return self._answer()

  def _answer(self, expected: str = '') -> str:
    """Returns the next line that is an answer; frameworks print others."""
    assert self._process.stdout
    for line in self._process.stdout:
      words = line.split()
      if line.rstrip('\n') == expected or (
        not expected and words and words[0].replace('.', '').isdigit()
      ):
        return line
    raise RuntimeError(
      f'{self._command} ended with status {self._process.wait()}; its message '
      'is above'
    )
