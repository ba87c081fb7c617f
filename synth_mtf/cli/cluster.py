"""`synth-mtf cluster`: one run of T5's main over several machines.

Every machine runs the same command with its own number. Task 0 runs T5's main;
the others lend it their devices through TensorFlow's gRPC runtime, under the
names `/job:worker/task:N/device:CPU:0` (or `GPU:0`), which
`utils.run.mesh_devices` lists.
"""

import argparse
import json
import os
import sys

from synth_mtf.cli import transformer
from synth_mtf.errors import UserError

SUMMARY = "T5's main over several machines: the same command on each"


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
  server = _serve(hosts, args.task)
  if args.task:
    print(f'Task {args.task} serves {hosts[args.task]}.', flush=True)
    server.join()
  # The estimator's own way to be told which session to use.
  os.environ['TF_CONFIG'] = json.dumps({'session_master': server.target})
  args.flags = [word for word in args.flags if word != '--']
  return transformer.run(args)


def _serve(hosts, task):
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
  finally:
    sys.stdout.flush()
