"""The hosts of a run, one process on each, and what they agree on.

Every process builds the same program, reads the same data and feeds the cores
of its own devices. JAX's coordination service connects them: its server is in
process 0, the only one that writes to the run's folder. A run ends on all hosts
or on none: a thread of each process watches the others.
"""

import contextlib
import logging
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import tensorflow.compat.v1 as tf

from synth_mtf.errors import Terminated, UserError
from synth_mtf.host import tpu_hosts
from synth_mtf.storage import filesystem

_PATIENCE = 60  # seconds without a sign of life; compilation can take some
_GRACE = 5  # seconds to find out which process is the cause of an error
_WRITING = 600  # seconds to finish a checkpoint when another process is lost
_COMPILATION = 3_600_000  # the longest difference between hosts, in ms
_KEYS = 'synth_mtf'  # prefix of our keys in the coordination service
_BEAT, _FAILED = f'{_KEYS}/beat/', f'{_KEYS}/failed/'
_ADVICE = 'To resume, give the same command on every host again.'
# JAX aborts a process that has lost the coordination service, which leaves no
# time for a message. A separate process then writes it.
_REPORTER = f"""
import sys
if not sys.stdin.read():
  sys.exit('synth-mtf: error: this process was ended: it was killed, or '
           'another process of the run is lost. {_ADVICE}')
"""
# Files of a run's folder that only process 0 needs.
_WRITTEN = re.compile(r'log|commands|training\.lock|events\..*|graph\.pbtxt')


class Group(NamedTuple):
  """The processes of a run.

  Attributes:
    size: the number of processes.
    number: this process, from 0.
  """

  size: int
  number: int


_ALONE = Group(1, 0)


class Wish:
  """What a process may ask for, and all processes then do after one step.

  A process without others need not ask anybody.
  """

  def __init__(self, is_alone: bool) -> None:
    self._is_alone = is_alone
    self._asked = self._granted = False

  def ask(self) -> None:
    if self._is_alone:
      self._granted = True
    self._asked = True

  def send(self) -> bool:
    """Returns whether this process asks, once for each `ask`."""
    asked, self._asked = self._asked, False
    return asked

  def grant(self) -> None:
    self._granted = True

  def take(self) -> bool:
    """Returns whether to do it now, once for each time it is granted."""
    granted, self._granted = self._granted, False
    return granted


class Hosts:
  """The processes of a run, as seen from one of them; by default it is alone.

  Attributes:
    count: the number of processes.
    number: this process, from 0.
    stop: the wish to end the run, as after SIGTERM.
    save: the wish to save a checkpoint, as after a minute.
    unfinished: held while a thread of this process writes a checkpoint.
  """

  def __init__(self, group: Group = _ALONE) -> None:
    self.count, self.number = group
    self.stop = Wish(self.is_alone)
    self.save = Wish(self.is_alone)
    self.unfinished = threading.Lock()

  @property
  def is_alone(self) -> bool:
    return self.count == 1

  @property
  def is_first(self) -> bool:
    """Whether this process writes checkpoints."""
    return self.number == 0

  def check_devices(self, devices: list[jax.Device]) -> None:
    """Refuses hosts whose devices cannot work together."""
    version = tuple(map(int, jax.__version__.split('.')[:2]))
    if self.is_alone or devices[0].platform != 'cpu' or version >= (0, 5):
      return
    if len(devices) > self.count:
      raise UserError(
        f'JAX {jax.__version__} cannot connect the CPUs of several hosts if a '
        'host has more than one device: leave '
        '--xla_force_host_platform_device_count out of XLA_FLAGS, or install '
        'JAX 0.5 or newer.'
      )

  @contextlib.contextmanager
  def folder(self, model_dir: str) -> Iterator[str]:
    """Yields the folder in which this process may write.

    For process 0, that is the run's. Each other process gets a temporary one,
    in which it finds the latest checkpoint.
    """
    if self.is_first:
      self._wait_for_all('folders')
      yield model_dir
      return
    with tempfile.TemporaryDirectory(prefix='synth-mtf-') as own:
      if tf.io.gfile.isdir(model_dir):
        show_files(model_dir, own)
      self._wait_for_all('folders')
      yield own

  def shared_number(self, name: str) -> int:
    """Returns a random number, the same in all processes."""
    number = random.SystemRandom().randrange(2**31)
    if self.is_alone:
      return number
    key = f'{_KEYS}/{name}'
    if self.is_first:
      _client().key_value_set(key, str(number), allow_overwrite=True)
    return int(_client().blocking_key_value_get(key, _COMPILATION))

  def check_equal(self, name: str, value: str, message: str) -> None:
    """Raises a UserError if a process has another value than process 0."""
    if self.is_alone:
      return
    key = f'{_KEYS}/{name}'
    if self.is_first:
      _client().key_value_set(key, value, allow_overwrite=True)
    elif _client().blocking_key_value_get(key, _COMPILATION) != value:
      raise UserError(message)

  def _wait_for_all(self, name: str) -> None:
    if not self.is_alone:
      _client().wait_at_barrier(f'{_KEYS}/{name}', _COMPILATION)


def address(
  coordinator: str | None, processes: int | None, number: int | None
) -> tuple[str, Group] | None:
  """Checks the flags of a run on several hosts; None if there are none.

  The environment variables are those that JAX reads.
  """
  texts = {
    '--coordinator_address (JAX_COORDINATOR_ADDRESS)': coordinator
    or os.environ.get('JAX_COORDINATOR_ADDRESS'),
    '--num_processes (JAX_NUM_PROCESSES)': processes
    if processes is not None
    else os.environ.get('JAX_NUM_PROCESSES'),
    '--process_id (JAX_PROCESS_ID)': number
    if number is not None
    else os.environ.get('JAX_PROCESS_ID'),
  }
  missing = [name for name, value in texts.items() if value in (None, '')]
  if len(missing) == len(texts):
    return None
  if missing:
    raise UserError(
      f'a run on several hosts also needs {" and ".join(missing)}: the '
      'address is host:port of process 0, the same on every host, and '
      'processes are numbered from 0.'
    )
  where, *numbers = map(str, texts.values())
  host, _, port = where.rpartition(':')
  if not (host and port.isdigit()):
    raise UserError(
      f'--coordinator_address={where}: expected host:port of process 0'
    )
  if not all(text.isdigit() for text in numbers):
    raise UserError(
      f'--num_processes={numbers[0]} --process_id={numbers[1]}: expected '
      'whole numbers'
    )
  group = Group(*map(int, numbers))
  if group.number >= group.size:
    raise UserError(
      f'--process_id={group.number}: expected 0 to {group.size - 1}, one for '
      f'each of {group.size} processes'
    )
  return where, group


@contextlib.contextmanager
def joined(kind: str, given: tuple[str, Group] | None) -> Iterator[Hosts]:
  """Joins the processes of a run; call it before JAX runs anything.

  If the run fails on one host, it ends on all, with one message on each.

  Args:
    kind: of the devices. On a TPU slice, JAX finds the other hosts itself.
    given: what `address` returns.
  """
  hosts = Hosts(_join(kind, given))
  if hosts.is_alone:
    yield hosts
    return
  watch = _Watch(hosts)
  watch.start()
  try:
    yield hosts
  except Exception as error:
    watch.end(error)
  except Terminated:
    watch.leave('terminated by SIGTERM', 128 + signal.SIGTERM)
  except KeyboardInterrupt:
    watch.leave('interrupted', 128 + signal.SIGINT)
  except SystemExit:  # a signal has stopped all hosts
    watch.finish()
    jax.distributed.shutdown()
    raise
  watch.finish()
  jax.distributed.shutdown()  # waits for the others


def _join(kind: str, given: tuple[str, Group] | None) -> Group:
  logging.getLogger('jax').setLevel(logging.WARNING)
  if given:
    where, group = given
    return _join_given(kind, where, group) if group.size > 1 else group
  if kind == 'tpu':
    count = tpu_hosts.count()
    if count > 1:
      return _join_slice(count)
  return _ALONE


def _join_slice(count: int) -> Group:
  try:
    with _sigterm_kept():
      jax.distributed.initialize()
  except (ValueError, IndexError, RuntimeError, OSError) as error:
    raise UserError(
      f'this TPU slice has {count} hosts, which JAX {jax.__version__} cannot '
      f'connect: {error}. Give the command on every host, or name the hosts by '
      '--coordinator_address, --num_processes and --process_id.'
    ) from error
  state = _state()
  return Group(state.num_processes, state.process_id)


def _join_given(kind: str, where: str, group: Group) -> Group:
  if kind == 'cpu':
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  try:
    with _sigterm_kept():
      jax.distributed.initialize(where, group.size, group.number)
  except RuntimeError as error:
    raise UserError(
      f'{group.size} processes did not meet at {where}: {error}. Is this the '
      'address of process 0, is the port free and open, and was the command '
      'given on every host?'
    ) from error
  return group


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
  """Undoes that JAX takes SIGTERM for itself, which Python does not see.

  JAX notes the signal for programs that ask it, and the process lives on.
  """
  before = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    if before is not None:  # it is Python's
      signal.signal(signal.SIGTERM, before)


def show_files(source: str, folder: str) -> None:
  """Links what a run reads of its folder; copies it from a bucket."""
  latest = os.path.basename(tf.train.latest_checkpoint(source) or '')
  for name in tf.io.gfile.listdir(source):
    path = os.path.join(source, name)
    is_other = name.startswith('model.ckpt-') and not name.startswith(
      f'{latest}.'
    )
    if is_other or _WRITTEN.fullmatch(name) or tf.io.gfile.isdir(path):
      continue
    if filesystem.is_bucket(source) or not name.startswith('model.ckpt-'):
      tf.io.gfile.copy(path, os.path.join(folder, name))
    else:
      os.symlink(os.path.abspath(path), os.path.join(folder, name))


class _Watch(threading.Thread):
  """Ends this process when another one fails or is lost.

  The main thread is then inside a program that waits for the other, which
  nothing else can interrupt.
  """

  def __init__(self, hosts: Hosts) -> None:
    super().__init__(daemon=True)
    self._hosts = hosts
    self.ended = threading.Event()
    self._report = threading.Lock()  # the first message is the only one
    self._console = os.fdopen(
      os.dup(2), 'w', encoding='utf-8', errors='replace'
    )
    self._reporter = subprocess.Popen(
      [sys.executable, '-c', _REPORTER],
      stdin=subprocess.PIPE,
      stderr=self._console,
      start_new_session=True,  # Ctrl-C is not for it
    )
    self._seen: dict[str, tuple[str, float]] = {}

  def run(self) -> None:
    beat = 0
    while not self.ended.wait(1):
      beat += 1
      message = self._look(str(beat), _PATIENCE)
      if message and not self.ended.is_set():
        self._exit(message)

  def _look(self, beat: str, patience: float) -> str | None:
    """Gives a sign of life; returns what has happened to another process."""
    own = f'{_BEAT}{self._hosts.number}'
    try:
      _client().key_value_set(own, beat, allow_overwrite=True)
      known = dict(_client().key_value_dir_get(f'{_KEYS}/'))
    except RuntimeError:
      return f'process 0 does not answer: it is lost. {_ADVICE}'
    now = time.monotonic()
    for key, value in known.items():
      number = key.rpartition('/')[2]
      if key.startswith(_FAILED) and number != str(self._hosts.number):
        return f'process {number} has ended: {value}'
      if not key.startswith(_BEAT):
        continue
      if self._seen.get(key, ('', 0.0))[0] != value:
        self._seen[key] = value, now
      if key != own and now - self._seen[key][1] > patience:
        return f'process {number} does not answer: it is lost. {_ADVICE}'
    return None

  def end(self, error: BaseException) -> None:
    """Ends this process with an error, or with the one that caused it."""
    if not isinstance(error, UserError):
      # It may only be the effect of another's end. JAX may report that, too.
      os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
      last = time.monotonic() + 2 * _GRACE
      while time.monotonic() < last:
        message = self._look(f'after an error, {last}', _GRACE)
        if message:
          self._exit(message)
        time.sleep(0.5)
    self.leave(str(error), 2 if isinstance(error, UserError) else 1)

  def leave(self, message: str, status: int) -> None:
    """Ends this process, and tells the others why."""
    with contextlib.suppress(RuntimeError):
      _client().key_value_set(f'{_FAILED}{self._hosts.number}', message)
    self._exit(message, status)

  def finish(self) -> None:
    """Stops watching, at a regular end."""
    self.ended.set()
    self._reporter.communicate(b'ended')

  def _exit(self, message: str, status: int = 2) -> None:
    if not self._report.acquire(blocking=False):
      time.sleep(2 * _GRACE)  # the other thread ends the process
    self.finish()
    print(f'synth-mtf: error: {message}', file=self._console, flush=True)
    if self._hosts.is_first:
      time.sleep(_GRACE)  # the others still read from the service
    self._hosts.unfinished.acquire(timeout=_WRITING)
    sys.stdout.flush()
    os._exit(status)


def _client() -> Any:
  return _state().client


def _state() -> Any:
  """Returns JAX's own view of the processes.

  No public function of JAX hands out the client of its coordination service.
  Tried with JAX 0.4.30 and 0.10.2.
  """
  from jax._src import distributed

  return distributed.global_state
