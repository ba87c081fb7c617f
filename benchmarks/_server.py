"""Runs steps in another process, one for each line that it is sent.

What is compared across frameworks lives in environments of its own; a worker
builds its steps, says that it is ready and then runs the step of each name that
it reads. This module imports nothing, so that any environment can run it.
"""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

_HERE = pathlib.Path(__file__).resolve().parent.parent
_READY = 'ready'
_PEAK = 'peak'


def serve(runs: Mapping[str, Callable[[], object]]) -> None:
  """Answers lines of standard input until it ends.

  A name is answered by the seconds that its run took, and those of all cores;
  `peak` by the largest memory that the process ever had, in bytes.

  Args:
    runs: what to time, by name; each runs twice before the first line.
  """
  for run in runs.values():
    run()
    run()
  print(_READY, flush=True)
  for line in sys.stdin:
    name = line.rstrip('\n')
    if name == _PEAK:
      print(_peak(), flush=True)
      continue
    wall, cpu = time.perf_counter(), time.process_time()
    runs[name]()
    print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)


def _peak() -> int:
  status = pathlib.Path('/proc/self/status').read_text()
  (line,) = (x for x in status.splitlines() if x.startswith('VmHWM'))
  return int(line.split()[1]) * 1024


class Worker:
  """A process that calls `serve`."""

  def __init__(self, command: Sequence[str], folder: pathlib.Path) -> None:
    """Starts a worker and waits until it is ready.

    Args:
      command: the worker's command line.
      folder: the checkout that it imports; benchmarks that an older one lacks
        are those of this checkout.

    Raises:
      RuntimeError: it ended before it was ready.
    """
    self._command = ' '.join(command)
    self._process = subprocess.Popen(
      list(command),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      cwd=folder,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(_path())},
    )
    self._answer(_READY)

  def seconds(self, name: str) -> tuple[float, float]:
    """Runs a step; its seconds by the clock, and those of all cores."""
    wall, cpu = self._ask(name).split()
    return float(wall), float(cpu)

  def peak(self) -> int:
    """The largest memory that it ever had, in bytes."""
    return int(self._ask(_PEAK))

  def close(self) -> None:
    """Lets it end."""
    self._process.communicate()

  def _ask(self, line: str) -> str:
    assert self._process.stdin
    self._process.stdin.write(line + '\n')
    self._process.stdin.flush()
    return self._answer()

  def _answer(self, expected: str = '') -> str:
    """Its next line that can be an answer; frameworks print others."""
    assert self._process.stdout
    for line in self._process.stdout:
      words = line.split()
      if line.rstrip('\n') == expected or (
        not expected and words and words[0].replace('.', '').isdigit()
      ):
        return line
    raise RuntimeError(
      f'{self._command} ended with status {self._process.wait()}; its '
      'message is above'
    )


def _path() -> list[str]:
  given = os.environ.get('PYTHONPATH')
  return [str(_HERE), *([given] if given else [])]
