"""Compiles programs for the cores of a TPU without one, and prints their costs.

    python tests/tpu/compile.py [--slice v3-8] FOLDER VARIANT [VARIANT ...]

reads FOLDER/VARIANT.hlo, written by `tests/tpu/lower.py` for that slice, and
prints a table of the compiler's figures for one core. It needs only
tests/tpu/requirements.txt.
"""

import argparse
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple


class Slice(NamedTuple):
  """A part of a TPU that can be had, and what its compiler calls it.

  Attributes:
    topology: chips in each direction, as in 'v5e:2x4'.
    cores: how many programs run at once. The two cores of a chip of v4 and v5p
      work as one.
    options: of the topology.
  """

  topology: str
  cores: int
  options: dict[str, str] = {}


# By the names of gin/layouts, which are Google's accelerator types.
SLICES = {
  'v2-8': Slice('v2:2x2', 8),
  'v3-8': Slice('v3:2x2', 8),
  'v4-8': Slice('v4:2x2x1', 4, {'chip_config_name': 'megacore'}),
  'v5litepod-8': Slice('v5e:2x4', 8),
  'v5p-8': Slice('v5p:2x2x1', 4),
  'v6e-8': Slice('v6e:2x4', 8),
}


class Figures(NamedTuple):
  """The compiler's figures for one core."""

  flops: float
  bytes_accessed: float
  temporary_bytes: int


def cores_of(name: str) -> Sequence[Any]:
  """Returns JAX's descriptions of the cores of a slice; call it once a process.

  A first call sets libtpu's environment variables.
  """
  os.environ['JAX_PLATFORMS'] = 'cpu'
  os.environ['TPU_SKIP_MDS_QUERY'] = '1'
  os.environ['TPU_ACCELERATOR_TYPE'] = name
  os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'
  os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'  # beside other processes
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
    hlo: without copies, which StableHLO lacks (`pjrt.program.without_copies`).

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


def figures(compiled: Any) -> Figures:
  """Returns the figures of an executable of `compile_for`."""
  cost = compiled.cost_analysis()
  memory = compiled.get_compiled_memory_stats()
  return Figures(
    cost['flops'], cost['bytes accessed'], memory.temp_size_in_bytes
  )


def main() -> None:
  """Prints a row for each program."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('variants', nargs='+', metavar='VARIANT')
  parser.add_argument('--slice', choices=SLICES, default='v3-8')
  arguments = parser.parse_args()
  cores = cores_of(arguments.slice)
  print('| variant | GFLOP | GB accessed | MB of temporary memory | s |')
  print('|---|---|---|---|---|')
  for variant in arguments.variants:
    hlo = (arguments.folder / f'{variant}.hlo').read_bytes()
    start = time.monotonic()
    found = figures(compile_for(cores, hlo))
    seconds = time.monotonic() - start
    print(
      f'| {variant} | {found.flops / 1e9:.1f} | '
      f'{found.bytes_accessed / 1e9:.2f} | '
      f'{found.temporary_bytes / 1e6:.0f} | {seconds:.0f} |',
      flush=True,
    )


if __name__ == '__main__':
  main()
