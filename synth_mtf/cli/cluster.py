"""`synth-mtf cluster`: one run of T5's main over several machines.

Every machine runs the same command with its own number. Task 0 runs T5's main;
the others lend it their devices through TensorFlow's gRPC runtime, under the
names `/job:worker/task:N/device:CPU:0` (or `GPU:0`), which
`utils.run.mesh_devices` lists.

TensorFlow waits for ever for a task that is lost. Here the run ends instead,
and the same commands resume it: a new session inside the run would read its
data from the start again.
"""

import argparse
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
    help='host:port of each machine, in order of their numbers',
  )
  parser.add_argument(
    '--task', type=int, required=True, help="this machine's number, from 0"
  )
  parser.add_argument(
    '--patience',
    type=int,
    default=_PATIENCE,
    help='seconds to wait for the others to start (%(default)s)',
  )
  parser.add_argument(
    'flags', nargs=argparse.REMAINDER, help='after --: flags of T5 (task 0)'
  )


def run(args: argparse.Namespace) -> int:
  """Serves this machine's devices, and on task 0 runs T5's main."""
  hosts = args.hosts.split(',')
  if not 0 <= args.task < len(hosts):
    raise UserError(
      f'--task={args.task}: expected 0 to {len(hosts) - 1}, one for each of '
      '--hosts'
    )
  for host in hosts:
    if not host.rpartition(':')[2].isdigit():
      raise UserError(f'--hosts: {host!r} is not of the form host:port')
  # It starts this command again, which must not happen once a server runs.
  process.fix_hash_seed()
  server = _serve(hosts, args.task)
  if args.task:
    print(f'Task {args.task} serves {hosts[args.task]}.', flush=True)
    _wait_for(hosts[:1], args.patience)
    _first_lost(hosts[:1])
    print(f'Task 0 ({hosts[0]}) has ended, and so does this one.')
    _leave(0)
  _wait_for(hosts, args.patience)
  threading.Thread(target=_fail_with, args=[hosts], daemon=True).start()
  # The estimator's own way to be told which session to use.
  os.environ['TF_CONFIG'] = json.dumps({'session_master': server.target})
  return main.run([word for word in args.flags if word != '--'])


def _serve(hosts: Sequence[str], task: int) -> Any:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
  import tensorflow.compat.v1 as tf
  import tensorflow_text  # noqa: F401 (operations of the input pipeline)

  try:
    return tf.distribute.Server(
      tf.train.ClusterSpec({'worker': hosts}),
      job_name='worker',
      task_index=task,
    )
  except tf.errors.OpError as error:
    raise UserError(
      f'{hosts[task]} cannot be served: {error.message}. Is the port free, and '
      'the host this machine?'
    ) from error


def _wait_for(hosts: Sequence[str], patience: int) -> None:
  """Waits until all hosts answer."""
  end = time.monotonic() + patience
  for host in hosts:
    if not _answers(host):
      print(f'Waiting for {host}.', flush=True)
    while not _answers(host):
      if time.monotonic() > end:
        raise UserError(
          f'{host} has not answered for {patience} seconds: is `synth-mtf '
          'cluster` running there, with the same --hosts?'
        )
      time.sleep(1)


def _first_lost(hosts: Sequence[str]) -> int:
  """Returns the number of the first host that no longer answers."""
  while True:
    time.sleep(1)
    for number, host in enumerate(hosts):
      if not any(_answers(host, wait) for wait in range(_TRIES)):
        return number


def _answers(host: str, wait: int = 0) -> bool:
  time.sleep(min(wait, 1))
  name, _, port = host.rpartition(':')
  try:
    socket.create_connection((name, int(port)), _SECONDS).close()
  except OSError:
    return False
  return True


def _fail_with(hosts: Sequence[str]) -> None:
  """Ends the run when a host is lost; to be run in a thread.

  The main thread is then inside TensorFlow, which nothing else interrupts. A
  checkpoint that it is writing counts only once it is complete.
  """
  import tensorflow.compat.v1 as tf
  from absl import flags

  number = _first_lost(hosts)
  latest = tf.train.latest_checkpoint(flags.FLAGS.model_dir)
  output.console().line(
    f'synth-mtf: error: task {number} ({hosts[number]}) is lost. '
    + (f'The last checkpoint is {latest}: to ' if latest else 'To ')
    + 'go on, give every machine its command again.'
  )
  _leave(2)


def _leave(status: int) -> NoReturn:
  """Ends this process, whose server would never end."""
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)
