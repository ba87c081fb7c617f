"""Training that repeats: the same losses each time, also after a resume."""

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.errors import UserError
from synth_mtf.host import patches
from synth_mtf.run.hooks import CountingHook

_STEP = 'synth_mtf_step'


def seed(estimator: Any, number: int) -> None:
  """Seeds what the host draws from: initial values and random operations.

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
  """Feeds the random operations the number of the step."""

  def before_run(self, run_context: Any) -> tf_estimator.SessionRunArgs:
    """Feeds it."""
    del run_context
    return tf_estimator.SessionRunArgs(
      [], dict.fromkeys(tf.get_collection(_STEP), self.step)
    )


@contextlib.contextmanager
def drawn_by_step() -> Iterator[None]:
  """Makes what a graph that is built here draws depend on seed and step."""
  with patches.random_by_step(_step), patches.step_counted_last():
    yield


def _step() -> tf.Tensor:
  """What `StepHook` feeds: one tensor for the whole graph."""
  if not tf.get_collection(_STEP):
    with tf.device(None), tf.control_dependencies(None):
      step = tf.placeholder_with_default(tf.zeros([], tf.int64), [])
    tf.add_to_collection(_STEP, step)
  return tf.get_collection(_STEP)[0]
