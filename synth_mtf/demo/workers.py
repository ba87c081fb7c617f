"""Runs a function in a process of its own, with its output in a log file.

TensorFlow keeps global state, and so do gin and absl: each piece of work gets a
new process, and the parent never imports TensorFlow. On Linux the processes are
forked from a server that has imported it once.

The function is given its arguments and `report`, a callable for progress. What
it returns, reports and raises comes back over a pipe; what is written to stdout
and stderr, by Python or by C++, goes to the log.
"""

import importlib
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from multiprocessing import connection, context, forkserver
from typing import Any, Callable, Optional, Union

from synth_mtf.errors import UserError
from synth_mtf.run import process

_FORKS = sys.platform == 'linux'  # elsewhere TensorFlow does not survive it
_CONTEXT: Union[context.ForkServerContext, context.SpawnContext] = (
  multiprocessing.get_context('forkserver')
  if _FORKS
  else multiprocessing.get_context('spawn')
)
_SECONDS_BETWEEN_TICKS = 1.0
_SECONDS_TO_SAVE = 120.0


class WorkerFailed(Exception):
  """A worker that ended without an answer; the message is for a person."""


def prepare(modules: Sequence[str]) -> None:
  """Starts the server that imports `modules`, and keeps its output quiet.

  Work may be asked for at once; it waits until they are imported.
  """
  if not _FORKS:
    return
  _CONTEXT.set_forkserver_preload(list(modules))
  with tempfile.TemporaryFile() as log:
    saved = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
      _redirect(log.fileno())
      forkserver.ensure_running()
    except OSError as error:
      raise UserError(
        f'no process can be started with the temporary folder '
        f'{tempfile.gettempdir()}: {error}. Set TMPDIR to a folder that can be '
        'written to and has a short name.'
      ) from error
    finally:
      for descriptor, original in zip((1, 2), saved):
        os.dup2(original, descriptor)
        os.close(original)


def run(
  function: str,
  *arguments: Any,
  log: pathlib.Path,
  on_report: Callable[[Any], None] = lambda report: None,
  on_tick: Callable[[], None] = lambda: None,
) -> Any:
  """Calls a function in a new process and returns what it returns.

  Args:
    function: 'module:name'.
    *arguments: what it is called with; `report` is added after them.
    log: the file to which its output is appended.
    on_report: called in this process with what the function reports.
    on_tick: called in this process about once a second.

  Raises:
    UserError: the function raised it.
    WorkerFailed: it raised anything else, or the process died.
  """
  receiver, sender = _CONTEXT.Pipe(duplex=False)
  scratch = tempfile.mkdtemp(prefix='synth-mtf-')
  worker = _CONTEXT.Process(
    target=_work, args=(sender, str(log), scratch, function, arguments)
  )
  worker.start()
  sender.close()
  try:
    return _listen(receiver, on_report, on_tick)
  except EOFError:
    worker.join()
    raise WorkerFailed(_death(worker.exitcode)) from None
  except KeyboardInterrupt:
    worker.terminate()  # what trains saves a checkpoint
    worker.join(_SECONDS_TO_SAVE)
    raise
  finally:
    if worker.is_alive():
      worker.join(10)
    worker.kill()
    worker.join()
    receiver.close()
    shutil.rmtree(scratch, ignore_errors=True)


def _listen(
  receiver: connection.Connection,
  on_report: Callable[[Any], None],
  on_tick: Callable[[], None],
) -> Any:
  while True:
    while not receiver.poll(_SECONDS_BETWEEN_TICKS):
      on_tick()
    kind, value = receiver.recv()
    if kind == 'report':
      on_report(value)
    elif kind == 'return':
      return value
    elif kind == 'mistake':
      raise UserError(value)
    else:
      raise WorkerFailed(value)


def _death(exitcode: Optional[int]) -> str:
  if exitcode == -signal.SIGKILL:
    return (
      'the process was killed by signal 9, as the system does where memory '
      'runs out'
    )
  if exitcode is not None and exitcode < 0:
    return f'the process was killed by signal {-exitcode}'
  return f'the process ended with status {exitcode} before it was done'


def _work(
  sender: connection.Connection,
  log: str,
  scratch: str,
  function: str,
  arguments: Sequence[Any],
) -> None:
  """What a worker process does."""
  with open(log, 'ab', buffering=0) as file:
    _redirect(file.fileno())
  # The command hears Ctrl-C, too, and then ends this process in order.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # TensorFlow leaves files there that a process which ends by _exit, as all
  # that are forked do, would not remove.
  os.environ['TMPDIR'] = tempfile.tempdir = scratch
  threading.Thread(target=_die_with_parent, args=[scratch], daemon=True).start()
  try:
    module, name = function.split(':')
    process.load_plugin()
    work = getattr(importlib.import_module(module), name)
    answer = ('return', work(*arguments, report=_reporter(sender)))
  except UserError as error:
    answer = ('mistake', str(error))
  except BaseException as error:  # even Ctrl-C: nothing else would report it
    traceback.print_exc()
    lines = str(error).strip().splitlines() or ['']
    answer = ('crash', f'{type(error).__name__}: {lines[0]}')
  sender.send(answer)


def _reporter(sender: connection.Connection) -> Callable[[Any], None]:
  return lambda report: sender.send(('report', report))


def _die_with_parent(scratch: str) -> None:
  """Ends this process when the command does, even by kill -9.

  Two processes would otherwise train in one folder after a restart.
  """
  command = multiprocessing.parent_process()
  assert command is not None
  command.join()
  shutil.rmtree(scratch, ignore_errors=True)
  os._exit(1)


def _redirect(descriptor: int) -> None:
  sys.stdout.flush()
  sys.stderr.flush()
  os.dup2(descriptor, 1)
  os.dup2(descriptor, 2)
