"""`synth-mtf cluster`: one run of T5's main over several machines.

Every machine runs the same command with its own number. Task 0 runs T5's main;
the others lend it their devices through TensorFlow's gRPC runtime, under the
names `/job:worker/task:N/device:CPU:0` (or `GPU:0`), which
`utils.run.mesh_devices` lists.

TensorFlow waits for ever for a lost task. Here the run ends instead, and the
same commands resume it: a new session inside the run would read its data from
the start again. Task 0 says goodbye when the run has succeeded; a task that
does not hear it ends with an error.

TensorFlow's server listens on all interfaces, whatever address it is given,
without authentication: use it in a private network only.
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from synth_mtf.errors import UserError
from synth_mtf.run import main, output, process

SUMMARY = "T5's main over several machines: the same command on each"

_PATIENCE = 300  # seconds for the others to start
_TRIES = 3  # attempts, a second apart, until a task counts as lost
_SECONDS = 5  # for one attempt


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the cluster's flags; every other word goes to T5's main."""
  parser.add_argument(
    '--hosts',
    required=True,
    type=lambda hosts: hosts.split(','),
    help='host:port of each machine, in order of their numbers',
  )
  parser.add_argument(
    '--task', type=int, required=True, help="this machine's number, from 0"
  )
  parser.add_argument(
    'flags', nargs=argparse.REMAINDER, help='after --: flags of T5 (task 0)'
  )


def run(args: argparse.Namespace) -> int:
  """Serves this machine's devices, and on task 0 runs T5's main."""
  hosts, task = args.hosts, args.task
  if not 0 <= task < len(hosts):
    raise UserError(
      f'--task={task}: expected 0 to {len(hosts) - 1}, one for each of --hosts'
    )
  for host in hosts:
    if not host.rpartition(':')[2].isdigit():
      raise UserError(f'--hosts: {host!r} is not of the form host:port')
  # May restart this command, so it comes before the server starts.
  process.fix_hash_seed()
  server = _serve(hosts, task)
  print(
    f'Task {task} serves {hosts[task]}. The port is open on all interfaces, '
    'without authentication.',
    flush=True,
  )
  others = [0] if task else range(1, len(hosts))
  for number in others:
    _wait_for(hosts[number])
  ended = threading.Event()
  watch = [hosts, others, ended]
  threading.Thread(target=_end_when_lost, args=watch, daemon=True).start()
  if task:
    _hear_goodbye(server, task)
    ended.set()
    print(f'Task 0 ({hosts[0]}) has finished, and so has this one.')
    time.sleep(1)  # task 0 closes its session first
    _leave(0)
  # From which the estimator learns which session to use.
  os.environ['TF_CONFIG'] = json.dumps({'session_master': server.target})
  status = main.run([word for word in args.flags if word != '--'])
  ended.set()  # a task that has heard the goodbye is not lost
  if not status:
    _say_goodbye(server, others)
  return status


def _serve(hosts: Sequence[str], task: int) -> Any:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  import tensorflow.compat.v1 as tf
  import tensorflow_text  # noqa: F401 (operations of the input pipeline)

  cluster = tf.train.ClusterSpec({'worker': hosts})
  try:
    return tf.distribute.Server(cluster, job_name='worker', task_index=task)
  except tf.errors.OpError as error:
    raise UserError(
      f'{hosts[task]} cannot be served: {error.message}. Is the port free, and '
      'the host this machine?'
    ) from error


def _goodbyes(task: int) -> Any:
  """A queue on a task's own device, shared by its sessions and task 0's."""
  import tensorflow.compat.v1 as tf

  with tf.device(f'/job:worker/task:{task}/device:CPU:0'):
    return tf.FIFOQueue(1, tf.bool, [[]], shared_name='synth_mtf_goodbye')


def _hear_goodbye(server: Any, task: int) -> None:
  """Returns when task 0 says that the run has succeeded."""
  import tensorflow.compat.v1 as tf

  # Of all tasks, only this one: another may be gone already.
  only = tf.ConfigProto(device_filters=[f'/job:worker/task:{task}'])
  with tf.Graph().as_default():
    heard = _goodbyes(task).dequeue()
    with tf.Session(server.target, config=only) as session:
      session.run(heard)


def _say_goodbye(server: Any, others: Sequence[int]) -> None:
  """Tells the other tasks that the run has succeeded."""
  import tensorflow.compat.v1 as tf

  options = tf.ConfigProto(operation_timeout_in_ms=1000 * _SECONDS)
  with tf.Graph().as_default(), contextlib.suppress(tf.errors.OpError):
    words = [_goodbyes(task).enqueue(True) for task in others]
    with tf.Session(server.target, config=options) as session:
      session.run(words)


def _wait_for(host: str) -> None:
  """Waits until a host answers."""
  print(f'Waiting for {host}.', flush=True)
  end = time.monotonic() + _PATIENCE
  while not _answers(host):
    if time.monotonic() > end:
      raise UserError(
        f'{host} has not answered for {_PATIENCE} seconds: is `synth-mtf '
        'cluster` running there, with the same --hosts?'
      )
    time.sleep(1)


def _answers(host: str) -> bool:
  name, _, port = host.rpartition(':')
  try:
    socket.create_connection((name, int(port)), _SECONDS).close()
  except OSError:
    return False
  return True


def _end_when_lost(
  hosts: Sequence[str], others: Sequence[int], ended: threading.Event
) -> None:
  """Ends this process when another task is lost; for a thread.

  The main thread is then inside TensorFlow, which nothing else interrupts. A
  checkpoint that it is writing counts only once it is complete.
  """
  from absl import flags

  from synth_mtf.checkpoints import folder

  failures = dict.fromkeys(others, 0)
  while max(failures.values(), default=0) < _TRIES:
    time.sleep(1)
    for number in others:
      answers = _answers(hosts[number])
      failures[number] = 0 if answers else failures[number] + 1
  if ended.is_set():
    return
  lost = max(failures, key=failures.__getitem__)
  latest = None
  with contextlib.suppress(UserError):
    # Only task 0 has parsed the flags.
    latest = flags.FLAGS.is_parsed() and folder.latest(flags.FLAGS.model_dir)
  # stdout and stderr may be the run's log by now.
  output.console().line(
    f'synth-mtf: error: task {lost} ({hosts[lost]}) is lost, or its run has '
    'failed.'
    + (f' The last checkpoint is {latest}.' if latest else '')
    + ' To resume, run the command on every machine again.'
  )
  _leave(2)


def _leave(status: int) -> NoReturn:
  """Ends this process, whose server would never end."""
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)
