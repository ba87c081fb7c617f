"""Which step a training session is at."""

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator


class CountingHook(tf_estimator.SessionRunHook):
  """Counts steps: `step` is the number of those that are done.

  The step that is counted in the graph will not do: a fetch may see it before
  or after its increment.
  """

  step: int

  def begin(self) -> None:
    """Finds the counted step, from which a run starts."""
    self._counted = tf.train.get_or_create_global_step()

  def after_create_session(self, session: tf.Session, coord: Any) -> None:
    """Notes where this process starts; a resumed run has steps behind it."""
    del coord
    self.step = int(session.run(self._counted))

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Counts."""
    del run_context, run_values
    self.step += 1
