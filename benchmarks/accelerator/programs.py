"""Compiles and runs the programs of `lower`; needs only JAX and NumPy.

It takes the compiler from the file in synth_mtf, whose package needs more.
Nothing here knows the model: a program takes features and variables, and
returns the loss and the new values of the variables that it assigns.
"""

import concurrent.futures
import gzip
import importlib.util
import json
import pathlib
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt


def _load_compiler() -> Any:
  file = pathlib.Path(__file__).parents[2] / 'synth_mtf/pjrt/compiler.py'
  spec = importlib.util.spec_from_file_location('compiler', file)
  assert spec and spec.loader
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


compiler = _load_compiler()
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
    found = compiler.memory_of(self._executable)
    return {**found._asdict(), 'peak': found.needed}


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
    with _CONVERTING:
      module = compiler.mlir_of(self.hlo)
    found = compiler.compile_mlir(module, [device])
    return Step(found, self.description['assigned'])

  def flops(self) -> float:
    """Counts the operations of the program as lowered, before optimization."""
    client = jax.devices('cpu')[0].client
    return compiler.flops_as_lowered(self.hlo, client)

  def initial(self, device: Any, seed: int = 0) -> list[jax.Array]:
    """Draws the variables; equal names and shapes have equal values."""
    return [
      jax.device_put(_draw(variable, seed), device)
      for variable in self.description['state']
    ]

  def random_features(self, device: Any, seed: int = 0) -> list[jax.Array]:
    """Returns rows without padding, and any two numbers for the seed."""
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
