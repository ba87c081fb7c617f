"""Processes for the parts of a demo, which have TensorFlow already imported.

Importing it takes longer than most of what they do, so they are forks of the
demo's process. In that process, nothing but imports may have happened: the
threads of TensorFlow's runtime, which even the first graph starts, would be
missing in a fork. Where a fork is not safe, they are new processes of Python.
"""

import atexit
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from synth_mtf import paths
from synth_mtf.errors import RunFailed, UserError

# Runs a command line of `synth-mtf`; returns its exit status.
Command = Callable[[Sequence[str]], int]


def can_fork() -> bool:
  """Whether the processes may be forks.

  Libraries of macOS do not survive it. A program that uses this package may
  have started TensorFlow.
  """
  return sys.platform != 'darwin' and paths.is_command()


def _context() -> Any:
  return multiprocessing.get_context('fork' if can_fork() else 'spawn')


def result_of(function: Callable[..., Any], *args: Any) -> Any:
  """Returns what a function returns in a fork, or raises its error.

  Without forks, it runs here.
  """
  if not can_fork():
    return function(*args)
  context = _context()
  reader, writer = context.Pipe(duplex=False)
  process = context.Process(target=_send, args=(writer, function, args))
  process.start()
  writer.close()
  try:
    result, error = reader.recv()
  except EOFError:
    process.join()
    raise RunFailed(died(process.exitcode)) from None
  finally:
    process.kill()
    process.join()
    reader.close()
  if error is not None:
    raise error
  return result


def _send(
  writer: Connection, function: Callable[..., Any], args: Sequence[Any]
) -> None:
  _forget_signals()
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo ends this process
  result, failure = None, None
  try:
    with at_exit():
      result = function(*args)
  except (UserError, RunFailed, OSError) as error:
    failure = error
  writer.send((result, failure))


@contextlib.contextmanager
def at_exit() -> Iterator[None]:
  """Runs, at the end of a block, what it registered with `atexit`.

  A fork that multiprocessing made does not run them, and TensorFlow's files for
  AutoGraph would stay in the temporary folder.
  """
  atexit._clear()  # noqa: SLF001 - what another process has registered
  try:
    yield
  finally:
    atexit._run_exitfuncs()  # noqa: SLF001


def _forget_signals() -> None:
  """Undoes what the demo does on signals."""
  signal.set_wakeup_fd(-1)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Running:
  """A command in a process.

  Attributes:
    reader: gets what the process prints, until it ends.
  """

  def __init__(
    self,
    command: Command,
    words: Sequence[str],
    environment: Mapping[str, str],
    others: Iterable['Running'],
  ) -> None:
    """Starts the command.

    Args:
      command: runs the command line, as in a process of its own.
      words: the command line, without the program.
      environment: variables that the process gets besides those of this one.
      others: the commands that are running.
    """
    context = _context()
    self.reader, writer = context.Pipe(duplex=False)
    readers = [self.reader, *(other.reader for other in others)]
    self._process = context.Process(
      target=_become, args=(command, words, environment, writer, readers)
    )
    gc.freeze()  # so that the processes share what was imported
    self._process.start()
    writer.close()
    self._cut = b''  # the beginning of a line

  def lines(self) -> list[str] | None:
    """Waits for output, and returns its whole lines; None at the end."""
    data = os.read(self.reader.fileno(), 2**16)
    if not data and not self._cut:
      return None
    *lines, self._cut = (self._cut + (data or b'\n')).split(b'\n')
    return [line.decode('utf-8', 'replace') for line in lines]

  def status(self) -> int:
    """Waits for the end; returns the exit status, or minus the signal."""
    self._process.join()
    return self._process.exitcode

  def terminate(self) -> None:
    """Asks a process to end; a run that trains saves a checkpoint."""
    self._process.terminate()

  def close(self) -> None:
    """Kills the process if it has not ended."""
    self._process.kill()
    self._process.join()
    self.reader.close()


@contextlib.contextmanager
def ended() -> Iterator[list[Running]]:
  """Yields a list for the processes of a block, and ends them with it.

  An exception in the block, such as Ctrl-C, terminates them after a training
  run has saved a checkpoint; a second one kills them at once.
  """
  running: list[Running] = []
  try:
    yield running
  except BaseException:
    for each in running:
      each.terminate()
    for each in running:
      each.status()
    raise
  finally:
    for each in running:
      each.close()


def _become(
  command: Command,
  words: Sequence[str],
  environment: Mapping[str, str],
  writer: Connection,
  readers: Sequence[Connection],
) -> None:
  """Becomes the command; does not return."""
  _forget_signals()
  for reader in readers:  # so that writing fails once the demo is killed
    reader.close()
  for descriptor in (1, 2):
    os.dup2(writer.fileno(), descriptor)
  writer.close()
  options: dict[str, Any] = {'encoding': 'utf-8', 'errors': 'replace'}
  sys.stdout = os.fdopen(1, 'w', closefd=False, **options)
  sys.stderr = os.fdopen(2, 'w', 1, closefd=False, **options)
  os.environ.update(environment)
  sys.argv = [sys.argv[0], *words]
  # A new process, which is no fork, runs what it registered by itself.
  exiting = at_exit() if can_fork() else contextlib.nullcontext()
  with exiting:
    sys.exit(command(words))


def died(status: int) -> str:
  """Says how a process ended that has not said why."""
  reason = f'the process ended with status {status}'
  if status == -signal.SIGKILL:
    reason += ' (it was killed, probably because memory ran out)'
  return reason
