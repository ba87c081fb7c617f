"""Which slice of which variable is on which device.

Mesh-TensorFlow's layout rules decide where each core's slice begins; a slice
that several cores hold is the same on all of them.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf
from jax._src.interpreters.pxla import global_aval_to_result_handler
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from synth_mtf.pjrt.hosts import Hosts

Array = npt.NDArray[Any]
# TensorFlow 2.12 has a type of its own with this name, which JAX does not know.
_BFLOAT16 = np.dtype(jax.numpy.bfloat16)
_BFLOAT16_OF_TENSORFLOW = np.dtype(tf.bfloat16.as_numpy_dtype)


def for_jax(value: Array) -> Array:
  """Returns an array of TensorFlow's with a type that JAX knows."""
  is_bfloat16 = value.dtype == _BFLOAT16_OF_TENSORFLOW
  return value.view(_BFLOAT16) if is_bfloat16 else value


def for_tensorflow(value: Array) -> Array:
  """Returns an array of JAX's with a type that TensorFlow knows."""
  is_bfloat16 = value.dtype == _BFLOAT16
  return value.view(_BFLOAT16_OF_TENSORFLOW) if is_bfloat16 else value


class Devices:
  """The devices that run a program, one core each, in the mesh's order.

  JAX and TensorFlow may share memory with NumPy's arrays, and each writes into
  its own again. What goes from one to the other is therefore copied.

  Attributes:
    devices: those of all hosts.
    hosts: the processes that they belong to.
    local: the numbers of this host's among them.
    platform: their kind: 'cpu', 'gpu' or 'tpu'.
  """

  def __init__(
    self, devices: Sequence[jax.Device], hosts: Hosts | None = None
  ) -> None:
    self.devices = list(devices)
    self.hosts = hosts or Hosts()
    self.platform = self.devices[0].platform
    process = self.devices[0].client.process_index()
    self.local = [
      i for i, d in enumerate(self.devices) if d.process_index == process
    ]
    mesh = Mesh(np.array(self.devices), ('core',))
    self._same = NamedSharding(mesh, PartitionSpec())
    self._split = NamedSharding(mesh, PartitionSpec('core'))
    # JAX compiles it once for each shape and choice.
    self._chosen = jax.jit(
      functools.partial(_chosen, len(self.devices)),
      static_argnums=1,
      out_shardings=self._same,
    )

  def __len__(self) -> int:
    return len(self.devices)

  def replicate(self, values: Sequence[Array]) -> list[jax.Array]:
    """Puts values, which are the same on every host, on every device."""
    if len(self.local) == len(self):
      return jax.device_put([np.array(value) for value in values], self._same)
    return [
      jax.make_array_from_single_device_arrays(
        value.shape, self._same, self._put([value] * len(self))
      )
      for value in values
    ]

  def gather(self, parts: Sequence[jax.Array]) -> jax.Array:
    """Returns one array of what is on each device of this host.

    JAX runs programs on such arrays. Its shape means nothing here.
    """
    if len(self) == 1:
      return parts[0]
    shape = parts[0].shape
    if not shape:  # a scalar has no axis to join
      return jax.make_array_from_single_device_arrays(
        shape, self._same, list(parts)
      )
    return jax.make_array_from_single_device_arrays(
      (len(self) * shape[0], *shape[1:]), self._split, list(parts)
    )

  def scatter(self, parts: Sequence[Array]) -> jax.Array:
    """Puts one value on each device; takes those of other hosts, too."""
    return self.gather(self._put(parts))

  def _put(self, parts: Sequence[Array]) -> list[jax.Array]:
    return [
      jax.device_put(np.array(parts[i]), self.devices[i]) for i in self.local
    ]

  def parts(self, array: jax.Array) -> dict[int, jax.Array]:
    """Returns what is on each device of this host, by its number."""
    return {
      self.devices.index(shard.device): shard.data
      for shard in array.addressable_shards
    }

  def fetch(self, array: jax.Array, cores: Sequence[int]) -> list[Array]:
    """Returns what is on some devices of any host, to all hosts."""
    chosen = self._chosen(array, tuple(cores))
    return list(np.asarray(chosen.addressable_data(0)))

  def joining(self, like: jax.Array) -> Any:
    """Returns what joins parts to an array such as this one, as `gather` does.

    It is JAX's own, so that a step of hundreds of variables takes no time of
    Python. JAX has no public name for it.
    """
    return global_aval_to_result_handler(like.aval, like.sharding, True)


def _chosen(count: int, array: jax.Array, cores: Sequence[int]) -> jax.Array:
  """Returns the parts of some of all cores."""
  size = array.shape[0] // count
  by_core = array.reshape(count, size, *array.shape[1:])
  return by_core[np.array(cores)]


@dataclasses.dataclass(frozen=True)
class Slicing:
  """How a variable is cut into a slice for each core."""

  begins: tuple[tuple[int, ...], ...]
  slice_shape: tuple[int, ...]
  shape: tuple[int, ...]

  def split(self, whole: Array) -> list[Array]:
    """Returns the slice of each core."""
    return [whole[self._index(begin)] for begin in self.begins]

  @property
  def distinct(self) -> dict[tuple[int, ...], int]:
    """The first core with each slice, by where the slice begins."""
    cores: dict[tuple[int, ...], int] = {}
    for core, begin in enumerate(self.begins):
      cores.setdefault(begin, core)
    return cores

  def join(self, slices: Mapping[int, Any]) -> Array:
    """Returns the whole of which these are slices, by core."""
    first = np.array(next(iter(slices.values())))
    if len(self.distinct) == 1:
      return first
    whole = np.zeros(self.shape, first.dtype)
    for core, part in slices.items():
      whole[self._index(self.begins[core])] = np.asarray(part)
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

  def __init__(self, devices: Devices | None) -> None:
    """Args: devices, or None for a program that never runs."""
    self._devices: Any = devices
    self._slicings: dict[str, Slicing] = {}
    self._given: dict[str, Array] = {}  # not yet on the devices
    self._fetched: dict[str, dict[int, Array]] = {}
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
    """Takes a variable's value for the devices."""
    self._given[name] = for_jax(np.array(value))

  def send(self) -> None:
    """Sends the values that were put; on several hosts, those of the first."""
    for name in sorted(self._given):
      value = self._given.pop(name)
      if not self._devices.hosts.is_alone:
        value = np.asarray(multihost_utils.broadcast_one_to_all(value))
      slices = self._slicings[name].split(value)
      self.arrays[name] = self._devices.scatter(slices)

  def fetch(self) -> None:
    """Brings slices to the first host that only other hosts have.

    All hosts must call it after the same step, before each `get`, which frees
    what it has read.
    """
    of_first = {
      i for i, d in enumerate(self._devices.devices) if d.process_index == 0
    }
    for name, slicing in sorted(self._slicings.items()):
      if name in self._given:
        continue
      cores = list(slicing.distinct.values())
      begins = {slicing.begins[core] for core in of_first}
      if len(begins) < len(cores):
        slices = self._devices.fetch(self.arrays[name], cores)
        self._fetched[name] = dict(zip(cores, slices, strict=True))

  def get(self, name: str) -> Array:
    """Reads a variable's value; waits for the program that computes it.

    On hosts other than the first, it may lack slices, which are then 0.
    """
    if name in self._given:
      return for_tensorflow(self._given[name])
    slices = self._fetched.pop(name, None)
    if slices is None:
      slices = self._devices.parts(self.arrays[name])
    return for_tensorflow(self._slicings[name].join(slices))
