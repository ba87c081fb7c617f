"""Compiles programs for a TPU v3-8 that is not here, and prints what they need.

    python tests/tpu/compile_hlo.py FOLDER

reads each FOLDER/VARIANT.hlo that `tests/tpu/hlo.py` wrote, and prints rows of
a Markdown table as it goes. It needs jax, jaxlib and libtpu alone
(`make tpu-compile` installs them into a folder of their own).
"""

import os
import pathlib
import sys
import time

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'
os.environ.setdefault('TPU_ACCELERATOR_TYPE', 'v3-8')
os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')

import numpy as np
from jax._src.lib import xla_client
from jax.experimental import topologies

_TOPOLOGY = 'v3:2x2'
_CORES = 8


def compile_(hlo: bytes):
  """Compiles a serialized HloModule for all cores."""
  slice_ = topologies.get_topology_desc(platform='tpu', topology_name=_TOPOLOGY)
  devices = slice_.devices[:_CORES]
  options = xla_client.CompileOptions()
  options.num_replicas = _CORES
  options.num_partitions = 1
  options.device_assignment = xla_client.DeviceAssignment.create(
    np.array([device.id for device in devices]).reshape(_CORES, 1)
  )
  module = xla_client._xla.mlir.xla_computation_to_mlir_module(
    xla_client.XlaComputation(hlo)
  )
  return devices[0].client.compile(module, options)


def main(folder: str) -> None:
  """Prints a row for each program."""
  print('| variant | FLOPs | bytes accessed | temporary memory | compiled in |')
  print('|---|---|---|---|---|')
  for path in sorted(pathlib.Path(folder).glob('*.hlo')):
    start = time.monotonic()
    compiled = compile_(path.read_bytes())
    seconds = time.monotonic() - start
    cost = compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    memory = compiled.get_compiled_memory_stats()
    print(
      f'| {path.stem} | {cost["flops"]:.3g} | {cost["bytes accessed"]:.3g} | '
      f'{memory.temp_size_in_bytes / 1e9:.2f} GB | {seconds:.0f} s |',
      flush=True,
    )


if __name__ == '__main__':
  main(sys.argv[1])
