"""Checks a run that reaches a TPU through TensorFlow itself (`--tpu`).

The host builds the whole model before it looks for the TPU, and reports what it
misses from its own inside.
"""

import importlib.util
import os
import socket

import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.host import bindings, explanations, tpu_runtime
from synth_mtf.host.run_config import RunConfig

_PORT = '8470'  # of start_grpc_tpu_worker
_SECONDS = 10  # to reach a worker
# What runs/cpu.gin and common/fast_cpu.gin bind.
_FOR_CPUS = (
  'synth_mtf.train_with_progress',
  'synth_mtf.EmbeddingByIndex',
  'synth_mtf.FeedForward',
)


def check_address(tpu: str) -> None:
  """Refuses a --tpu that cannot be reached from here.

  Args:
    tpu: 'local' for the TPU of this machine, 'grpc://host:port,...' for the
      workers of a slice, or else a name that the Cloud TPU API knows.
  """
  if tpu == 'local':
    _check_local()
  elif tpu.startswith('grpc://'):
    for address in _addresses(tpu):
      _check_worker(address)
  elif not importlib.util.find_spec('googleapiclient'):
    raise UserError(
      f'--tpu={tpu} is a name, and looking it up takes the Google API client, '
      f'which is not installed. {explanations.TPU_VM_ADVICE}'
    )


def check_run(run: RunConfig) -> None:
  """Refuses gin files for CPUs, and a mesh for another TPU than the one found.

  Args:
    run: a run with --tpu.
  """
  _check_gin_files()
  if run.tpu == 'local' or run.tpu.startswith('grpc://'):
    check_cores(run, _number_of_cores(run.tpu))


def check_cores(run: RunConfig, found: int) -> None:
  """Refuses a mesh that does not have a core for each that was found."""
  if run.mesh.size != found:
    raise UserError(
      f'the mesh {run.mesh.to_string} is for {run.mesh.size} cores, and '
      f'--tpu={run.tpu} has {found}: give the layout of this slice in place of '
      'the other (layouts/*.gin, utils.tpu_mesh_shape.tpu_topology). A v4 has '
      'one core for each chip: --logical_cores_per_chip=1.'
    )


def _check_local() -> None:
  chips = tpu_runtime.chips()
  if chips and not chips.has_stream_executor:
    raise UserError(
      f'--tpu=local: this machine has TPU {chips.generation}, which '
      "TensorFlow's Estimator does not reach: only v2, v3 and v4 have the "
      'runtime that it needs (on others it ends in "No TPU platform '
      'registered"). Give --device=tpu in place of --tpu.'
    )
  if not tpu_runtime.has_runtime():
    overwritten = ''
    if tpu_runtime.are_mixed():
      overwritten = ' (package tensorflow; it overwrote tensorflow-tpu)'
    raise UserError(
      f'--tpu=local: TensorFlow {tf.__version__}{overwritten} was built '
      f'without a TPU runtime. {explanations.NO_CORES_ADVICE}'
    )
  if os.environ.get('TPU_LOAD_LIBRARY') == '0':
    raise UserError(
      '--tpu=local: the environment variable TPU_LOAD_LIBRARY=0 keeps '
      'TensorFlow from using the TPU of this machine. Unset it.'
    )
  holder = tpu_runtime.lock_holder()
  if holder:
    raise UserError(
      f'--tpu=local: process {holder} uses the TPU already (it holds '
      f'{tpu_runtime.LOCK}). Wait for it, or stop it: kill {holder}.'
    )


def _addresses(tpu: str) -> list[str]:
  return [part.removeprefix('grpc://') for part in tpu.split(',')]


def _check_worker(address: str) -> None:
  host, _, port = address.partition(':')
  try:
    socket.create_connection((host, int(port or _PORT)), _SECONDS).close()
  except (OSError, ValueError) as error:
    raise UserError(
      f'--tpu: no TensorFlow server answers at {address} ({error}). Give '
      f'grpc://ADDRESS:{_PORT} for each host of the slice, separated by '
      'commas, and start a worker on each (docs/tpu.md).'
    ) from error


def _number_of_cores(tpu: str) -> int:
  resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
  cores = resolver.get_tpu_system_metadata().num_cores
  if not cores:
    raise UserError(
      f'--tpu={tpu}: TensorFlow finds no TPU cores there. '
      f'{explanations.NO_CORES_ADVICE}'
    )
  return cores


def _check_gin_files() -> None:
  for binding in bindings.bindings():
    if getattr(binding.raw, 'selector', '') in _FOR_CPUS:
      raise UserError(
        f'--tpu: {binding.raw} is for CPUs (gin binds '
        f'{binding.selector}.{binding.parameter} to it). Leave out '
        'runs/cpu.gin and common/fast_cpu.gin, and give the layout of the TPU '
        'last (--gin_file=layouts/...); in place of the operative_config.gin '
        'of a run on a CPU, give the gin files of that run.'
      )
