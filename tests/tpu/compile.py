"""Compiles programs for a TPU v3-8 that is not here, and prints what they need.

    python tests/tpu/compile.py FOLDER VARIANT [VARIANT ...]

takes FOLDER/VARIANT.hlo, which `tests/tpu/lower.py` wrote, and prints the rows
of a table as it goes: what XLA's compiler for TPUs says of one core. It needs
tests/tpu/requirements.txt and nothing else of this project.
"""

import os
import pathlib
import sys
import time
from typing import Any

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'
os.environ['TPU_ACCELERATOR_TYPE'] = 'v3-8'
os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'

import numpy as np
from jax._src.lib import xla_client
from jax.experimental import topologies

_CORES = 8


def compile_(hlo: bytes) -> Any:
  """Compiles a serialized HloModule for all cores."""
  topology = topologies.get_topology_desc(
    platform='tpu', topology_name='v3:2x2'
  )
  devices = topology.devices[:_CORES]
  options = xla_client.CompileOptions()
  options.num_replicas = _CORES
  options.num_partitions = 1
  options.device_assignment = xla_client.DeviceAssignment.create(
    np.array([device.id for device in devices]).reshape(_CORES, 1)
  )
  # jax offers no other way from a HloModule to what it compiles.
  module = xla_client._xla.mlir.xla_computation_to_mlir_module(  # noqa: SLF001
    xla_client.XlaComputation(hlo)
  )
  return devices[0].client.compile(module, options)


def main(folder: str, *variants: str) -> None:
  """Prints a row for each program."""
  print('| variant | GFLOP | GB accessed | MB of temporary memory | s |')
  print('|---|---|---|---|---|')
  for variant in variants:
    hlo = pathlib.Path(folder, f'{variant}.hlo').read_bytes()
    start = time.monotonic()
    compiled = compile_(hlo)
    seconds = time.monotonic() - start
    cost = compiled.cost_analysis()
    memory = compiled.get_compiled_memory_stats().temp_size_in_bytes
    print(
      f'| {variant} | {cost["flops"] / 1e9:.1f} | '
      f'{cost["bytes accessed"] / 1e9:.2f} | {memory / 1e6:.0f} | '
      f'{seconds:.0f} |',
      flush=True,
    )


if __name__ == '__main__':
  main(*sys.argv[1:])
