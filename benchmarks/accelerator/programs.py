"""Compiles and runs the programs of `lower`; needs only JAX and NumPy.

Nothing here knows the model: a program takes features and variables, and
returns the loss and the new values of the variables that it assigns.
"""

import concurrent.futures
import gzip
import json
import pathlib
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
from jax._src.lib import xla_client

jax.config.update('jax_enable_x64', True)  # the step is counted in int64

Array = npt.NDArray[Any]
# Threads that convert at the same time can wait for each other for ever.
_CONVERTING = threading.Lock()


class Step:
  """A compiled training step."""

  def __init__(self, executable: Any, assigned: Sequence[int]) -> None:
    self._executable = executable
    self._assigned = assigned

  def __call__(
    self, features: Sequence[jax.Array], state: Sequence[jax.Array]
  ) -> tuple[jax.Array, list[jax.Array]]:
    """Returns the loss and the new state, without waiting for them.

    The new state takes the memory of the old one, which cannot be used again.
    """
    results = self._executable.execute_sharded([*features, *state])
    loss, *new = (
      result[0] for result in results.disassemble_into_single_device_arrays()
    )
    updated = list(state)
    for i, value in zip(self._assigned, new, strict=True):
      updated[i] = value
    return loss, updated

  def memory(self) -> dict[str, int]:
    """Returns the bytes on the device, by the compiler's own count."""
    found = self._executable.get_compiled_memory_stats()
    sizes = {
      'arguments': found.argument_size_in_bytes,
      'results': found.output_size_in_bytes,
      'shared': found.alias_size_in_bytes,
      'temporary': found.temp_size_in_bytes,
    }
    peak = sum(sizes.values()) - 2 * sizes['shared']
    return {**sizes, 'peak': peak}


class Program(NamedTuple):
  """A lowered training step."""

  description: Mapping[str, Any]  # as `lower` writes it
  hlo: bytes

  @classmethod
  def read(cls, folder: pathlib.Path, name: str) -> 'Program':
    """Reads the two files of a name."""
    path = folder / name.replace(' ', '_')
    return cls(
      json.loads(path.with_suffix('.json').read_text()),
      gzip.decompress(path.with_suffix('.hlo.gz').read_bytes()),
    )

  def compile(self, device: Any) -> Step:
    """Compiles the step for a device."""
    # JAX has no public function that compiles a HloModule.
    extension = xla_client._xla.mlir  # noqa: SLF001
    with _CONVERTING:
      module = extension.xla_computation_to_mlir_module(
        xla_client.XlaComputation(self.hlo)
      )
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(
      np.array([[device.id]])
    )
    if hasattr(device.client, 'compile_and_load'):
      devices = xla_client.DeviceList((device,))
      found = device.client.compile_and_load(module, devices, options)
    else:  # before JAX 0.6
      found = device.client.compile(module, options)
    return Step(found, self.description['assigned'])

  def flops(self) -> float:
    """Counts the operations of the program as lowered, before optimization."""
    module = xla_client.XlaComputation(self.hlo).get_hlo_module()
    client = jax.devices('cpu')[0].client
    return xla_client._xla.hlo_module_cost_analysis(  # noqa: SLF001
      client, module
    )['flops']

  def initial(self, device: Any, seed: int = 0) -> list[jax.Array]:
    """Draws the variables; equal names and shapes have equal values."""
    return [
      jax.device_put(_draw(variable, seed), device)
      for variable in self.description['state']
    ]

  def random_features(self, device: Any, seed: int = 0) -> list[jax.Array]:
    """Returns rows without padding."""
    rng = np.random.default_rng(seed)
    vocabulary = self.description['size']['vocab']
    return [
      jax.device_put(
        rng.integers(2, vocabulary, feature['shape'], np.int32), device
      )
      for feature in self.description['features']
    ]

  def features(
    self, batch: Mapping[str, Array], device: Any
  ) -> list[jax.Array]:
    """Returns a batch of token ids in the program's order."""
    return [
      jax.device_put(batch[feature['name']].astype(np.int32), device)
      for feature in self.description['features']
    ]


def compile_all(
  programs: Mapping[Any, Program], device: Any, timeout: float
) -> dict[Any, Step | Exception]:
  """Compiles in parallel; what fails or takes too long has an exception."""
  pool = concurrent.futures.ThreadPoolExecutor(max(1, len(programs)))
  futures = {
    key: pool.submit(program.compile, device)
    for key, program in programs.items()
  }
  concurrent.futures.wait(futures.values(), timeout)
  pool.shutdown(wait=False, cancel_futures=True)
  found: dict[Any, Step | Exception] = {}
  for key, future in futures.items():
    try:
      found[key] = future.result(timeout=0)
    except Exception as error:
      found[key] = error
  return found


def _draw(variable: Mapping[str, Any], seed: int) -> Array:
  shape, how = variable['shape'], variable['initial']
  if how['kind'] == 'constant':
    return np.full(shape, how['value'], variable['dtype'])
  rng = np.random.default_rng([seed, zlib.crc32(variable['name'].encode())])
  if how['kind'] == 'uniform':
    value = rng.random(shape, np.float32)
    return how['min'] + (how['max'] - how['min']) * value
  value = rng.standard_normal(shape, np.float32)
  if how['kind'] == 'truncated_normal':
    while (beyond := np.abs(value) > 2).any():
      value[beyond] = rng.standard_normal(beyond.sum(), np.float32)
  return np.float32(how['mean']) + np.float32(how['stddev']) * value
