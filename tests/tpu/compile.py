"""Compiles programs for a TPU v3-8 without one, and prints their costs.

    python tests/tpu/compile.py FOLDER VARIANT [VARIANT ...]

reads FOLDER/VARIANT.hlo, written by `tests/tpu/lower.py`, and prints a table of
the compiler's figures for one core. It needs only tests/tpu/requirements.txt.
"""

import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'
os.environ['TPU_ACCELERATOR_TYPE'] = 'v3-8'
os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'

import numpy as np
from jax._src.lib import xla_client
from jax.experimental import topologies


def compile_(hlo: bytes, devices: Sequence[Any]) -> Any:
  """Compiles a serialized HloModule for a replica on each device."""
  options = xla_client.CompileOptions()
  options.num_replicas = len(devices)
  options.num_partitions = 1
  options.device_assignment = xla_client.DeviceAssignment.create(
    np.array([[device.id] for device in devices])
  )
  # jax has no public function that compiles a HloModule.
  module = xla_client._xla.mlir.xla_computation_to_mlir_module(  # noqa: SLF001
    xla_client.XlaComputation(hlo)
  )
  return devices[0].client.compile(module, options)


def main(folder: str, *variants: str) -> None:
  """Prints a row for each program."""
  topology = topologies.get_topology_desc(
    platform='tpu', topology_name='v3:2x2'
  )
  print('| variant | GFLOP | GB accessed | MB of temporary memory | s |')
  print('|---|---|---|---|---|')
  for variant in variants:
    hlo = pathlib.Path(folder, f'{variant}.hlo').read_bytes()
    start = time.monotonic()
    compiled = compile_(hlo, topology.devices[:8])
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
