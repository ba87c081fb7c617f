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


class StepHook(tf_estimator.SessionRunHook):
  """Tells the random operations which step it is.

  The step that is counted in the graph will not do: its increment has no fixed
  order relative to what reads it.
  """

  def begin(self) -> None:
    """Finds the counted step, from which a run starts."""
    self._counted = tf.train.get_or_create_global_step()

  def after_create_session(self, session: tf.Session, coord: Any) -> None:
    """Notes where this run starts."""
    del coord
    self._step = int(session.run(self._counted))

  def before_run(self, run_context: Any) -> tf_estimator.SessionRunArgs:
    """Feeds the step."""
    del run_context
    return tf_estimator.SessionRunArgs(
      [], dict.fromkeys(tf.get_collection(_STEP), self._step)
    )

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Counts the step."""
    del run_context, run_values
    self._step += 1


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
