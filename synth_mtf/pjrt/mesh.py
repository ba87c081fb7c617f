"""Mesh-TensorFlow's mesh of cores that run one program.

The layout of tensors and what cores exchange are `SimdMeshImpl`'s, as on a TPU.
It differs in three points: variables live on JAX's devices (`placement.py`),
random numbers follow from a seed, and a core reads its number from an input.
"""

import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow import simd_mesh_impl
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.ops import while_v2

from synth_mtf.core.dimensions import programs_for
from synth_mtf.host import patches
from synth_mtf.pjrt import collectives, placement

_STATELESS = {
  tf.random.uniform: tf.random.stateless_uniform,
  tf.random.normal: tf.random.stateless_normal,
}


@dataclasses.dataclass
class Inputs:
  """What the program of a core reads in addition to features and variables.

  Attributes:
    core: its number, a scalar.
    seed: a pair of integers that random numbers follow from.
  """

  core: tf.Tensor
  seed: tf.Tensor

  @classmethod
  def placeholders(cls) -> 'Inputs':
    return cls(
      core=gen_xla_ops.xla_replica_id(),
      seed=tf.placeholder(tf.int32, [2], name='seed'),
    )


class DeviceMesh(simd_mesh_impl.SimdMeshImpl):
  """The cores of JAX's devices, in their order."""

  def __init__(
    self,
    shape: mtf.Shape,
    layout: mtf.LayoutRules,
    inputs: Inputs,
    variables: placement.Variables,
    loops: 'Loops',
  ) -> None:
    super().__init__(shape, layout)
    self._inputs = inputs
    self._loops = loops
    self.placed_variables = variables
    self._draws = 0  # of random numbers in the program so far
    self.fetched = tf.numpy_function(variables.fetch, [], [])

  @property
  def pnum_tensor(self) -> tf.Tensor:
    return self._inputs.core

  def random(
    self, shape: mtf.Shape, tf_fn: Callable[..., tf.Tensor], kwargs: Any
  ) -> Any:
    """Draws numbers that differ by slice; equal slices are equal."""
    self._draws += 1
    seed = self._inputs.seed
    slice_number = self.laid_out_slice_num(shape).one_slice
    for number in (self._draws, slice_number, *self._loops.counters):
      seed = tf.random.experimental.stateless_fold_in(seed, number)
    return self.LaidOutTensor(
      [_STATELESS[tf_fn](self.slice_shape(shape), seed, **kwargs)]
    )

  class LaidOutVariable(simd_mesh_impl.SimdMeshImpl.LaidOutVariable):
    """A variable with its master in the session and slices on the devices."""

    def __init__(self, variable: mtf.Variable, mesh_impl: 'DeviceMesh') -> None:
      shape = variable.shape
      self._variable = variable
      self._slice = tf.Variable(
        tf.zeros(mesh_impl.slice_shape(shape), variable.slice_dtype),
        trainable=False,
        collections=[],  # no session ever holds its value
        name=f'{variable.name}_slice',
      )
      self._laid_out_tensor = mesh_impl.LaidOutTensor([self._slice])
      name = self._slice.handle.op.name
      variables = mesh_impl.placed_variables
      variables.add(
        name,
        [mesh_impl.slice_begin(shape, core) for core in range(mesh_impl.size)],
        mesh_impl.slice_shape(shape),
        shape.to_integer_list,
      )
      whole = tf.cast(variable.get_master(), variable.slice_dtype)
      self._copy_master_to_slices = tf.numpy_function(
        lambda value: variables.put(name, value), [whole], []
      )
      with tf.control_dependencies([mesh_impl.fetched]):
        value = tf.numpy_function(
          lambda: variables.get(name), [], variable.slice_dtype
        )
      value.set_shape(shape.to_integer_list)
      self._copy_slices_to_master = variable.assign_to_master(
        tf.cast(value, variable.master_dtype)
      )

    def assign_to_slices(self, *args: Any, **kwargs: Any) -> tf.Operation:
      """Assigns after all reads, which nothing else orders."""
      readers = [
        op
        for op in self._slice.handle.consumers()
        if op.type == 'ReadVariableOp'
      ]
      with tf.control_dependencies(readers):
        return super().assign_to_slices(*args, **kwargs)


class Loops:
  """Builds loops as single operations, which XLA translates.

  They count their iterations, from which random numbers follow.

  Attributes:
    counters: of the loops that are being built, from the outside in.
  """

  def __init__(self) -> None:
    self.counters: list[tf.Tensor] = []

  def while_loop(
    self,
    cond: Callable[..., Any],
    body: Callable[..., Any],
    variables: Any,
    **options: Any,
  ) -> Any:
    """Stands in for `tf.while_loop`."""

    def counted_cond(_: tf.Tensor, *values: Any) -> Any:
      return cond(*values)

    def counted_body(count: tf.Tensor, *values: Any) -> Any:
      self.counters.append(count)
      try:
        return count + 1, *body(*values)
      finally:
        self.counters.pop()

    _, *results = while_v2.while_loop(
      counted_cond, counted_body, [tf.constant(0), *variables], **options
    )
    return results


@contextlib.contextmanager
def used(
  inputs: Inputs,
  variables: placement.Variables,
  cores: int,
  platform: str,
) -> Iterator[dict[str, Any]]:
  """Makes the host's model function build for this mesh.

  Yields the `params` to call it with.

  Args:
    inputs: what a core reads in addition to features and variables.
    variables: on the devices.
    cores: their number.
    platform: their kind, as JAX names it.
  """

  def make(
    shape: mtf.Shape, layout: mtf.LayoutRules, *_: Any, **__: Any
  ) -> DeviceMesh:
    return DeviceMesh(shape, layout, inputs, variables, loops)

  loops = Loops()
  topology = types.SimpleNamespace(mesh_shape=[cores, 1, 1])
  context = types.SimpleNamespace(
    num_hosts=1,
    num_replicas=cores,
    device_assignment=types.SimpleNamespace(topology=topology),
    tpu_host_placement_function=lambda host_id: '',
  )
  with (
    patches.tpu_mesh_replaced(make, collectives, loops.while_loop),
    programs_for(platform),
  ):
    yield {'context': context}
