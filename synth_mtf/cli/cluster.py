"""`synth-mtf cluster`: runs T5's main on several machines.

Every machine runs the same command with its own task number. Task 0 runs T5's
main; the others provide their devices through TensorFlow's gRPC runtime, under
the names `/job:worker/task:N/device:CPU:0` (or `GPU:0`), which
`utils.run.mesh_devices` lists.

TensorFlow waits forever for a lost task. Here the run ends instead, and the
same commands resume it: a new session within the run would read its data from
the start again. Task 0 notifies the other tasks when the run succeeds; a task
that is not notified ends with an error.

TensorFlow's server listens on all interfaces, regardless of its address, and
without authentication: use it only in a private network.
"""

import argparse
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from synth_mtf.errors import UserError
from synth_mtf.host import patches
from synth_mtf.run import main, output, process

_PATIENCE = 300  # attempts, one second apart, to reach a starting task
_TRIES = 3  # failed attempts until a started task counts as lost
_SECONDS = 5  # timeout of one attempt
_GOODBYE = 60  # seconds to notify tasks that may be busy


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the cluster's flags; other arguments are passed to T5's main."""
  parser.add_argument(
    '--hosts',
    required=True,
    type=lambda hosts: hosts.split(','),
    help='host:port of each machine, in the order of their numbers',
  )
  parser.add_argument(
    '--task', type=int, required=True, help="this machine's number, from 0"
  )
  parser.add_argument(
    'flags',
    nargs=argparse.REMAINDER,
    help="after --, the flags of T5's main (only for task 0)",
  )


def run(args: argparse.Namespace) -> int:
  """Serves this machine's devices, and on task 0 runs T5's main."""
  hosts, task = args.hosts, args.task
  if not 0 <= task < len(hosts):
    raise UserError(
      f'--task={task}: expected 0 to {len(hosts) - 1}, one for each of --hosts'
    )
  for host in hosts:
    name, _, port = host.rpartition(':')
    if not (name and port.isdigit()):
      raise UserError(f'--hosts: {host!r} is not of the form host:port')
  # May restart this command, so it must run before the server starts.
  process.fix_hash_seed()
  server = _serve(hosts, task)
  port = hosts[task].rpartition(':')[2]
  print(
    f'Task {task} serves {hosts[task]}. The port is open on all interfaces, '
    f'whatever the address, without authentication: `ss -ltn` lists it as '
    f'*:{port}. Waiting for the other tasks.',
    flush=True,
  )
  ended = threading.Event()
  other_tasks = [0] if task else range(1, len(hosts))
  for number in other_tasks:
    threading.Thread(
      target=_end_when_lost, args=[number, hosts[number], ended], daemon=True
    ).start()
  if task:
    _wait_for_goodbye(server, task)
    ended.set()  # task 0 is not lost
    print(f'Task 0 ({hosts[0]}) has finished, and so has this one.', flush=True)
    time.sleep(1)  # task 0 closes its session first
    os._exit(0)  # the server would never exit
  # Tells the estimator which session to use.
  os.environ['TF_CONFIG'] = json.dumps({'session_master': server.target})
  status = main.run([word for word in args.flags if word != '--'])
  ended.set()  # a task that exits after its notification is not lost
  if not status:
    _send_goodbye(server, other_tasks)
  return status


def _serve(hosts: Sequence[str], task: int) -> Any:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  with output.kept():
    patches.prepare_host()
    import tensorflow.compat.v1 as tf
    import tensorflow_text  # noqa: F401 (operations of the input pipeline)

    cluster = tf.train.ClusterSpec({'worker': hosts})
    try:
      return tf.distribute.Server(cluster, job_name='worker', task_index=task)
    except tf.errors.OpError as error:
      raise UserError(
        f'{hosts[task]} cannot be served: {error.message}. Is the port free, '
        'and the host this machine?'
      ) from error


# Each task has a queue on its own device for the notification that the run has
# succeeded.


def _wait_for_goodbye(server: Any, task: int) -> None:
  """Waits until task 0 notifies this one."""
  import tensorflow.compat.v1 as tf

  with tf.Graph().as_default():
    notification = _queue(task).dequeue()
    with _session(server, [task]) as session:
      session.run(notification)


def _send_goodbye(server: Any, tasks: Sequence[int]) -> None:
  """Notifies the other tasks; one that does not hear it reports an error."""
  import tensorflow.compat.v1 as tf

  with tf.Graph().as_default(), contextlib.suppress(tf.errors.OpError):
    notifications = [_queue(task).enqueue(True) for task in tasks]
    with _session(server, tasks, _GOODBYE) as session:
      session.run(notifications)


def _queue(task: int) -> Any:
  import tensorflow.compat.v1 as tf

  with tf.device(f'{_device_prefix(task)}/device:CPU:0'):
    return tf.FIFOQueue(1, tf.bool, [[]], shared_name='synth_mtf_goodbye')


def _session(server: Any, tasks: Sequence[int], timeout: int = 0) -> Any:
  """Connects to the given tasks only, since others may have exited.

  Operations end after `timeout` seconds; 0 is no limit.
  """
  import tensorflow.compat.v1 as tf

  options = tf.ConfigProto(
    device_filters=[_device_prefix(task) for task in tasks],
    operation_timeout_in_ms=1000 * timeout,
  )
  return tf.Session(server.target, config=options)


def _device_prefix(task: int) -> str:
  return f'/job:worker/task:{task}'


def _end_when_lost(number: int, host: str, ended: threading.Event) -> None:
  """Ends this process when another task is lost; runs in a thread per task.

  The main thread is then inside TensorFlow, which nothing else can interrupt. A
  partly written checkpoint is never resumed from.
  """
  name, _, port = host.rpartition(':')
  failures = _TRIES - _PATIENCE
  while failures < _TRIES:
    time.sleep(1)
    try:
      socket.create_connection((name.strip('[]'), int(port)), _SECONDS).close()
      failures = 0
    except OSError:
      failures += 1
  if ended.is_set():
    return
  # stdout and stderr may already be redirected to the run's log.
  output.console().line(
    f'synth-mtf: error: task {number} ({host}) does not answer: it is '
    'lost, has failed or was not started. To resume, run the command on every '
    'machine again.'
  )
  os._exit(2)
