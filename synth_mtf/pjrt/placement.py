"""Which slice of which variable is on which device.

Mesh-TensorFlow's layout rules decide where each core's slice begins; a slice
that several cores hold is the same on all of them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Array = npt.NDArray[Any]


class Devices:
  """The devices that run a program, one core each, in the mesh's order.

  JAX and TensorFlow may share memory with NumPy's arrays, and each writes into
  its own again. What goes from one to the other is therefore copied.
  """

  def __init__(self, devices: Sequence[jax.Device]) -> None:
    self.devices = list(devices)
    self._mesh = Mesh(np.array(self.devices), ('core',))

  def __len__(self) -> int:
    return len(self.devices)

  def replicate(self, values: Sequence[Array]) -> list[jax.Array]:
    """Puts values on every device."""
    return jax.device_put(
      [np.array(value) for value in values],
      NamedSharding(self._mesh, PartitionSpec()),
    )

  def gather(self, parts: Sequence[jax.Array]) -> jax.Array:
    """Returns one array of what is on each device.

    JAX runs programs on such arrays. Its shape means nothing here.
    """
    if len(parts) == 1:
      return parts[0]
    shape = parts[0].shape
    if not shape:  # a scalar has no axis to join
      spec = PartitionSpec()
    else:
      spec, shape = PartitionSpec('core'), (len(parts) * shape[0], *shape[1:])
    return jax.make_array_from_single_device_arrays(
      shape, NamedSharding(self._mesh, spec), list(parts)
    )

  def scatter(self, parts: Sequence[Array]) -> jax.Array:
    """Puts one value on each device."""
    return self.gather(
      [
        jax.device_put(np.array(part), device)
        for part, device in zip(parts, self.devices, strict=True)
      ]
    )


@dataclasses.dataclass(frozen=True)
class Slicing:
  """How a variable is cut into a slice for each core."""

  begins: tuple[tuple[int, ...], ...]
  slice_shape: tuple[int, ...]
  shape: tuple[int, ...]

  def split(self, whole: Array) -> list[Array]:
    """Returns the slice of each core."""
    return [whole[self._index(begin)] for begin in self.begins]

  def join(self, slices: Sequence[Any]) -> Array:
    """Returns the whole of which these are slices."""
    distinct = dict(zip(self.begins, slices, strict=True))
    first = np.array(slices[0])
    if len(distinct) == 1:
      return first
    whole = np.empty(self.shape, first.dtype)
    for begin, part in distinct.items():
      whole[self._index(begin)] = np.asarray(part)
    return whole

  def _index(self, begin: Sequence[int]) -> tuple[slice, ...]:
    return tuple(
      slice(start, start + size)
      for start, size in zip(begin, self.slice_shape, strict=True)
    )


class Variables:
  """The variables of a program, kept on the devices.

  Attributes:
    arrays: the slices, by the variable's name.
  """

  def __init__(self, devices: Devices) -> None:
    self._devices = devices
    self._slicings: dict[str, Slicing] = {}
    self.arrays: dict[str, jax.Array] = {}

  def add(
    self,
    name: str,
    begins: Sequence[Sequence[int]],
    slice_shape: Sequence[int],
    shape: Sequence[int],
  ) -> None:
    """Adds a variable without a value."""
    self._slicings[name] = Slicing(
      tuple(map(tuple, begins)), tuple(slice_shape), tuple(shape)
    )

  def put(self, name: str, value: Array) -> None:
    """Sends a variable's value to the devices."""
    self.arrays[name] = self._devices.scatter(self._slicings[name].split(value))

  def get(self, name: str) -> Array:
    """Reads a variable's value; waits for the program that computes it."""
    shards = sorted(
      self.arrays[name].addressable_shards,
      key=lambda shard: self._devices.devices.index(shard.device),
    )
    return self._slicings[name].join([shard.data for shard in shards])
