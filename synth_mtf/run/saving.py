"""When training saves a checkpoint, and what is in it.

The host's saver counts steps alone: a run of few or slow steps that is killed
loses all of them. It also writes the whole graph as text into the events and
beside each checkpoint: 40 MB each time for a model of half a million weights
with the input pipelines of a mixture.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.checkpoints import folder
from synth_mtf.host import patches

# Saving by time takes no more than this part of it.
_MOST_OF_THE_TIME = 0.05


@contextlib.contextmanager
def also_by_time(
  seconds: float, *listeners: tf_estimator.CheckpointSaverListener
) -> Iterator[None]:
  """Has the host save with a `TimelySaver`.

  Args:
    seconds: the least time between checkpoints that are not due by steps.
    *listeners: called after those that the host adds.
  """

  class Saver(TimelySaver):
    least_seconds = seconds
    more_listeners = listeners

  with patches.savers_are(Saver):
    yield


class TimelySaver(tf.train.CheckpointSaverHook):
  """The host's saver, with more checkpoints and without the graph.

  Checkpoints that are due by steps, and the last one, stay as with the host.
  One that is saved by time stays until the next one is complete.
  """

  least_seconds = 60.0
  more_listeners: Sequence[tf_estimator.CheckpointSaverListener] = ()

  def __init__(
    self,
    checkpoint_dir: str,
    save_steps: int,
    saver: tf.train.Saver,
    listeners: Sequence[tf_estimator.CheckpointSaverListener] = (),
  ) -> None:
    super().__init__(
      checkpoint_dir,
      save_steps=save_steps,
      saver=saver,
      listeners=[*listeners, *self.more_listeners],
      save_graph_def=False,
    )
    self._timer = Schedule(save_steps, self.least_seconds)
    self._passing: Optional[str] = None  # the last that was saved by time

  def after_create_session(self, session: tf.Session, coord: Any) -> None:
    """Saves the step at which this process starts; the host's does as well."""
    del coord
    step = session.run(self._global_step_tensor)
    self._timer.start(step, _earliest(self._checkpoint_dir, step))
    self._save(session, step)

  def _save(self, session: tf.Session, step: int) -> bool:
    passed, self._passing = self._passing, None
    if passed:
      # The list that is written with the new checkpoint must not have it.
      kept = [path for path in self._saver.last_checkpoints if path != passed]
      self._saver.recover_last_checkpoints(kept)
    path = f'{self._save_path}-{step}'
    begun = time.monotonic()
    try:
      should_stop = super()._save(session, step)
    except tf.errors.OpError:  # a full disk: make room for the next attempt
      if tf.io.gfile.exists(f'{path}_temp'):
        tf.io.gfile.rmtree(f'{path}_temp')
      raise
    self._timer.saved(time.monotonic() - begun)
    if passed:
      tf.train.remove_checkpoint(passed)
    if not self._timer.was_due_by_steps:
      self._passing = path
    return should_stop


class Schedule:
  """When to save; has the methods of the timer of the host's saver."""

  def __init__(self, every_steps: int, least_seconds: float) -> None:
    self._every_steps = every_steps
    self._least_seconds = least_seconds
    self.was_due_by_steps = True

  def start(self, step: int, first_step: int) -> None:
    """Begins at a step of a run that began at `first_step`."""
    self._first_step = first_step
    self._last_step = step

  def should_trigger_for_step(self, step: int) -> bool:
    """Whether to save at a step, which the host may still be running."""
    if step == self._last_step:
      return False
    return self._is_due_by_steps(step) or time.monotonic() >= self._due

  def update_last_triggered_step(self, step: int) -> None:
    """Notes that a checkpoint will be saved."""
    self.was_due_by_steps = self._is_due_by_steps(step)
    self._last_step = step

  def last_triggered_step(self) -> int:
    """The step of the last checkpoint."""
    return self._last_step

  def saved(self, seconds: float) -> None:
    """Notes that a checkpoint is saved, and how long it took."""
    wait = max(self._least_seconds, seconds / _MOST_OF_THE_TIME)
    self._due = time.monotonic() + wait

  def _is_due_by_steps(self, step: int) -> bool:
    done, before = (
      (one - self._first_step) // self._every_steps
      for one in (step, self._last_step)
    )
    return done > before


def _earliest(model_dir: str, step: int) -> int:
  """Returns the step at which a run began, as far as its checkpoints show.

  A resumed run then saves at the same steps as one that was not stopped.
  """
  return min([step, *map(folder.step_of, folder.written(model_dir))])
