"""Compiles programs for devices of this machine, or of a TPU elsewhere.

    python -I compiler.py SLICE PROGRAM.hlo [PROGRAM.hlo ...]

prints a line of JSON with the compiler's figures for each program, on a slice
that need not exist. The newest libtpu needs another JAX than TensorFlow does,
and so an environment without this package: this file imports only JAX.
"""

import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src.compiler import compile_or_get_cached
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir


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


class Cost(NamedTuple):
  """What a program does on each device, by the compiler's count.

  What is in a loop counts once.

  Attributes:
    flops: floating-point operations.
    accessed: bytes that it reads and writes.
  """

  flops: float
  accessed: float


def cost_of(executable: Any) -> Cost:
  """Returns what one of JAX's executables does."""
  counts = executable.cost_analysis()
  return Cost(counts['flops'], counts['bytes accessed'])


class Memory(NamedTuple):
  """Bytes that a program takes on each device, by the compiler's count.

  Attributes:
    kept: of what it takes and returns; what it updates counts once.
    temporary: of what it needs while it runs.
  """

  kept: int
  temporary: int

  @property
  def needed(self) -> int:
    return self.kept + self.temporary


def memory_of(executable: Any) -> Memory:
  """Returns what one of JAX's executables takes."""
  sizes = executable.get_compiled_memory_stats()
  taken = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
  return Memory(taken - sizes.alias_size_in_bytes, sizes.temp_size_in_bytes)


def flops_as_lowered(hlo: bytes, client: Any) -> float:
  """Counts the operations of a program before it is optimized."""
  module = xla_client.XlaComputation(hlo).get_hlo_module()
  extension = xla_client._xla  # noqa: SLF001
  return extension.hlo_module_cost_analysis(client, module)['flops']


def compile_hlo(hlo: bytes, devices: Sequence[Any]) -> Any:
  """Compiles a serialized HloModule with a replica on each device.

  No public function of JAX does this: `jax.export` takes only what JAX itself
  has exported, in its own calling convention, and `jax2tf.call_tf` inlines a
  TensorFlow function only if it assigns no variable. Tried with JAX 0.4.30 and
  0.12.0.1.

  Args:
    hlo: without copies, which StableHLO lacks (`program.without_copies`).
    devices: JAX's.

  Returns:
    JAX's executable.
  """
  return compile_mlir(mlir_of(hlo), devices)


def compile_mlir(module: bytes, devices: Sequence[Any]) -> Any:
  """Compiles what `mlir_of` returns with a replica on each device.

  As with what JAX itself compiles, the result is kept in the folder
  JAX_COMPILATION_CACHE_DIR, and taken from there, if that is set.
  """
  client = devices[0].client
  listed = []
  if hasattr(client, 'compile_and_load'):  # since JAX 0.6
    listed = [xla_client.DeviceList(tuple(devices))]
  host_callbacks: list[Any] = []
  return compile_or_get_cached(
    client,
    _parsed(module),
    np.array(devices),
    _options(devices),
    host_callbacks,
    *listed,
  )


def compile_for_slice(hlo: bytes, cores: Sequence[Any]) -> Any:
  """Compiles a serialized HloModule for a replica on each core of a slice.

  Args:
    hlo: as for `compile_hlo`.
    cores: of `cores_of`.

  Returns:
    JAX's executable, which has no memory and cannot be run.
  """
  module = _parsed(mlir_of(hlo))
  listed = xla_client.DeviceList(tuple(cores))
  return cores[0].client.compile(module, listed, _options(cores))


def _parsed(module: bytes) -> ir.Module:
  with mlir.make_ir_context():
    return ir.Module.parse(module)


def mlir_of(hlo: bytes) -> bytes:
  """Translates a serialized HloModule to what JAX's clients take."""
  return xla_client._xla.mlir.xla_computation_to_mlir_module(  # noqa: SLF001
    xla_client.XlaComputation(hlo)
  )


def _options(devices: Sequence[Any]) -> Any:
  """Returns options for a replica on each device."""
  options = xla_client.CompileOptions()
  options.num_replicas = len(devices)
  options.num_partitions = 1
  options.device_assignment = xla_client.DeviceAssignment.create(
    np.array([[device.id] for device in devices])
  )
  return options


def cores_of(name: str) -> Sequence[Any]:
  """Returns JAX's descriptions of the cores of a slice; call it once a process.

  The first call sets libtpu's environment variables.
  """
  os.environ['TPU_SKIP_MDS_QUERY'] = '1'
  os.environ['TPU_ACCELERATOR_TYPE'] = name
  os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'
  os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'  # other processes may have it
  os.environ.pop('TPU_LOAD_LIBRARY', None)  # 0 means not to load it
  jax.config.update('jax_platforms', 'cpu')
  from jax.experimental import topologies

  chosen = SLICES[name]
  description = topologies.get_topology_desc(
    platform='tpu', topology_name=chosen.topology, **chosen.options
  )
  assert len(description.devices) == chosen.cores
  return description.devices


def main(words: Sequence[str]) -> None:
  """Prints the figures of each program, or why the compiler gives none.

  A program that does not fit the core's memory has no figures.
  """
  name, *paths = words
  cores = cores_of(name)
  for path in paths:
    found: dict[str, Any]
    try:
      executable = compile_for_slice(pathlib.Path(path).read_bytes(), cores)
      found = {
        'cost': cost_of(executable)._asdict(),
        'memory': memory_of(executable)._asdict(),
      }
    except Exception as error:  # of XLA, in Python's classes
      found = {'error': str(error)}
    print(json.dumps(found))


if __name__ == '__main__':
  main(sys.argv[1:])
