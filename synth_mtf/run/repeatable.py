"""Training that repeats: the same losses each time, also after a resume.

TensorFlow's random operations keep their state in the session. No checkpoint
holds it: a resumed run would drop out again what its first steps dropped out.
Here the operations of Mesh-TensorFlow have no state; what they draw follows
from their seed and the step.
"""

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.placement_mesh_impl import PlacementMeshImpl
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.errors import UserError
from synth_mtf.run.hooks import CountingHook

_STATELESS = {
  tf.random.uniform: tf.random.stateless_uniform,
  tf.random.normal: tf.random.stateless_normal,
}
_STEP = 'synth_mtf_step'


def seed(estimator: Any, number: int) -> None:
  """Seeds what the host draws from: initial values and random operations.

  Args:
    estimator: the estimator whose training is to repeat.
    number: the seed.

  Raises:
    UserError: PYTHONHASHSEED is not set.
  """
  if not os.environ.get('PYTHONHASHSEED', 'random').isdigit():
    raise UserError(
      f'synth_mtf.train_with_progress.seed is {number}, but the environment '
      'variable PYTHONHASHSEED is not set: no two runs would agree. Start the '
      'command with PYTHONHASHSEED=0 before it.'
    )
  random.seed(number)  # the host draws from it
  # An estimator has no setter for its seed.
  estimator._config = estimator.config.replace(  # noqa: SLF001
    tf_random_seed=number
  )


class StepHook(CountingHook):
  """Tells the random operations which step it is."""

  def before_run(self, run_context: Any) -> tf_estimator.SessionRunArgs:
    """Feeds the step."""
    del run_context
    return tf_estimator.SessionRunArgs(
      [], dict.fromkeys(tf.get_collection(_STEP), self.step)
    )


@contextlib.contextmanager
def counted_last() -> Iterator[None]:
  """Has a step counted when all that depends on its number has read it.

  The host adds one to the global step beside the updates of a step, in no order
  with them: under load, Adafactor's decay rate and the schedule of the learning
  rate sometimes read the number of the next step.
  """
  at_any_time = tf.assign_add

  def behind_readers(ref: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
    # The stock command's variables are others, which have no handle.
    if ref is not tf.train.get_global_step() or not hasattr(ref, 'handle'):
      return at_any_time(ref, *args, **kwargs)
    with tf.control_dependencies(_readers(ref)):
      return at_any_time(ref, *args, **kwargs)

  tf.assign_add = behind_readers
  try:
    yield
  finally:
    tf.assign_add = at_any_time


def _readers(variable: tf.Variable) -> list[tf.Operation]:
  """Returns the operations of a graph that read a resource variable so far."""
  return [
    operation
    for operation in variable.handle.consumers()
    if operation.type == 'ReadVariableOp'
  ]


@contextlib.contextmanager
def drawn_by_step() -> Iterator[None]:
  """Makes random operations of placement meshes functions of seed and step.

  Operations inside a loop (microbatches) keep their state, which tells the
  rounds of the loop apart; so do those on a TPU.
  """
  by_state = PlacementMeshImpl.random

  def by_step(
    self: PlacementMeshImpl,
    shape: mtf.Shape,
    tf_fn: Callable[..., tf.Tensor],
    kwargs: dict[str, Any],
  ) -> Any:
    # TensorFlow tells in no public way whether it builds a loop.
    if tf.get_default_graph()._get_control_flow_context():  # noqa: SLF001
      return by_state(self, shape, tf_fn, kwargs)

    def draw(shape: Any, seed: int, **kwargs: Any) -> tf.Tensor:
      pair = tf.stack([tf.constant(seed, tf.int64), _step()])
      return _STATELESS[tf_fn](shape, pair, **kwargs)

    return by_state(self, shape, draw, kwargs)

  PlacementMeshImpl.random = by_step
  try:
    yield
  finally:
    PlacementMeshImpl.random = by_state


def _step() -> tf.Tensor:
  """What `StepHook` feeds: one tensor for the whole graph."""
  if not tf.get_collection(_STEP):
    with tf.device(None), tf.control_dependencies(None):
      step = tf.placeholder_with_default(tf.zeros([], tf.int64), [])
    tf.add_to_collection(_STEP, step)
  return tf.get_collection(_STEP)[0]
