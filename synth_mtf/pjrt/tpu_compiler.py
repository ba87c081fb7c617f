"""Compiles programs for the cores of a TPU that is not there.

    python -I tpu_compiler.py SLICE PROGRAM.hlo [PROGRAM.hlo ...]

prints a line of JSON with the compiler's figures for each program. The newest
libtpu needs another JAX than TensorFlow does, and so an environment of its own,
without this package: this file imports nothing of it.
"""

import json
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple


class Slice(NamedTuple):
  """A part of a TPU that can be had, and what its compiler calls it.

  Attributes:
    topology: chips in each direction, as in 'v5e:2x4'.
    cores: how many programs run at once. The two cores of a chip of v4 and v5p
      work as one.
    gigabytes: of memory that a core has, in GiB; see docs/scaling.md.
    options: of the topology.
  """

  topology: str
  cores: int
  gigabytes: int
  options: dict[str, str] = {}


# By the names of gin/layouts, which are Google's accelerator types.
SLICES = {
  'v2-8': Slice('v2:2x2', 8, 8),
  'v3-8': Slice('v3:2x2', 8, 16),
  'v4-8': Slice('v4:2x2x1', 4, 32, {'chip_config_name': 'megacore'}),
  'v5litepod-8': Slice('v5e:2x4', 8, 16),
  'v5p-8': Slice('v5p:2x2x1', 4, 95),
  'v6e-8': Slice('v6e:2x4', 8, 32),
}


def cores_of(name: str) -> Sequence[Any]:
  """Returns JAX's descriptions of the cores of a slice; call it once a process.

  A first call sets libtpu's environment variables.
  """
  os.environ['JAX_PLATFORMS'] = 'cpu'
  os.environ['TPU_SKIP_MDS_QUERY'] = '1'
  os.environ['TPU_ACCELERATOR_TYPE'] = name
  os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'
  os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'  # beside other processes
  os.environ.pop('TPU_LOAD_LIBRARY', None)  # 0 means not to load it
  from jax.experimental import topologies

  chosen = SLICES[name]
  description = topologies.get_topology_desc(
    platform='tpu', topology_name=chosen.topology, **chosen.options
  )
  assert len(description.devices) == chosen.cores
  return description.devices


def compile_for(cores: Sequence[Any], hlo: bytes) -> Any:
  """Compiles a serialized HloModule for a replica on each core.

  Args:
    cores: of `cores_of`.
    hlo: without copies, which StableHLO lacks (`program.without_copies`).

  Returns:
    JAX's executable, which has no memory and cannot be run.
  """
  import numpy as np
  from jax._src.interpreters import mlir
  from jax._src.lib import xla_client
  from jax._src.lib.mlir import ir

  options = xla_client.CompileOptions()
  options.num_replicas = len(cores)
  options.num_partitions = 1
  options.device_assignment = xla_client.DeviceAssignment.create(
    np.array([[core.id] for core in cores])
  )
  # JAX has no public function that compiles a HloModule.
  text = xla_client._xla.mlir.xla_computation_to_mlir_module(  # noqa: SLF001
    xla_client.XlaComputation(hlo)
  )
  with mlir.make_ir_context():
    module = ir.Module.parse(text)
  devices = xla_client.DeviceList(tuple(cores))
  return cores[0].client.compile(module, devices, options)


def figures(cores: Sequence[Any], hlo: bytes) -> dict[str, Any]:
  """Returns the compiler's figures for one core, or why it gives none.

  Bytes, floating-point operations and seconds. A program that does not fit the
  core's memory has no figures.
  """
  start = time.monotonic()
  try:
    compiled = compile_for(cores, hlo)
  except Exception as error:  # of XLA, in Python's classes
    return {'error': str(error)}
  cost = compiled.cost_analysis()
  memory = compiled.get_compiled_memory_stats()
  return {
    'flops': cost['flops'],
    'bytes_accessed': cost['bytes accessed'],
    'kept': memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes,
    'temporary': memory.temp_size_in_bytes,
    'seconds': time.monotonic() - start,
  }


def main(words: Sequence[str]) -> None:
  """Prints the figures of each program."""
  name, *paths = words
  cores = cores_of(name)
  for path in paths:
    print(json.dumps(figures(cores, pathlib.Path(path).read_bytes())))


if __name__ == '__main__':
  main(sys.argv[1:])
