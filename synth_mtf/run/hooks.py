"""What a training session does besides training: count, report, check.

The host's own check ends a run whose loss is NaN, but a checkpoint may be
written between the update that spoils the weights and the loss that shows it.
Here no checkpoint is written that is not finite.
"""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.run.console import TrainingProgress

Listener = Callable[[TrainingProgress], None]

_SECONDS_BETWEEN_REPORTS = 0.5


class CountingHook(tf_estimator.SessionRunHook):
  """Counts steps: `step` is the number of those that are done.

  A fetch of the graph's own count may see it before or after its increment.
  """

  step: int

  def begin(self) -> None:
    """Finds the counted step, from which a run starts."""
    self._counted = tf.train.get_or_create_global_step()

  def after_create_session(self, session: tf.Session, coord: Any) -> None:
    """Notes where this process starts."""
    del coord
    self.step = int(session.run(self._counted))

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Counts."""
    del run_context, run_values
    self.step += 1


class LossHook(CountingHook):
  """Reports step, loss and speed, and stops training on NaN or infinity.

  Args:
    model_dir: the folder of the run's checkpoints.
    total: the step at which the run ends.
    listener: is told the progress.
  """

  def __init__(self, model_dir: str, total: int, listener: Listener) -> None:
    self._model_dir = model_dir
    self._total = total
    self._listener = listener

  def begin(self) -> None:
    """Finds the loss, which the estimator has put in the graph."""
    super().begin()
    self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]

  def after_create_session(self, session: tf.Session, coord: Any) -> None:
    """Notes where this process starts."""
    super().after_create_session(session, coord)
    self._first_step = self.step + 1
    self._losses: list[float] = []

  def before_run(self, run_context: Any) -> tf_estimator.SessionRunArgs:
    """Asks for the loss."""
    del run_context
    return tf_estimator.SessionRunArgs(self._loss)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Checks the loss, and reports if the last report was some time ago.

    Raises:
      UserError: the loss is not finite.
    """
    super().after_run(run_context, run_values)
    loss = float(run_values.results)
    if not math.isfinite(loss):
      raise not_finite(
        f'the loss is {loss} since step {self.step}', self._model_dir
      )
    self._losses.append(loss)
    now = time.monotonic()
    if self.step == self._first_step:  # it compiles and fills caches
      self._first_time = self._reported_time = now
    elif now - self._reported_time >= _SECONDS_BETWEEN_REPORTS:
      self._report(now)

  def end(self, session: tf.Session) -> None:
    """Reports the last steps."""
    del session
    if self._losses:
      self._report(time.monotonic())

  def _report(self, now: float) -> None:
    elapsed = max(now - self._first_time, 1e-9)
    self._listener(
      TrainingProgress(
        step=self.step,
        total=self._total,
        loss=sum(self._losses) / len(self._losses),
        steps_per_second=(self.step - self._first_step) / elapsed,
      )
    )
    self._losses.clear()
    self._reported_time = now


class FiniteWeightsListener(tf_estimator.CheckpointSaverListener):
  """Lets no checkpoint be written that holds NaN or infinity.

  Args:
    model_dir: the folder of the run's checkpoints.
  """

  def __init__(self, model_dir: str) -> None:
    self._model_dir = model_dir

  def begin(self) -> None:
    """Adds the check of each variable to the graph."""
    self._finite = {
      variable.op.name: tf.reduce_all(tf.is_finite(variable))
      for variable in tf.global_variables()
      if variable.dtype.base_dtype.is_floating
    }

  def before_save(self, session: tf.Session, global_step_value: int) -> None:
    """Checks the variables.

    Raises:
      UserError: one is not finite.
    """
    finite = session.run(self._finite)
    spoilt = sorted(name for name, is_finite in finite.items() if not is_finite)
    if spoilt:
      raise not_finite(
        f'the weights hold NaN or infinity at step {global_step_value}, in '
        f'{len(spoilt)} of {len(finite)} variables ({spoilt[0]}, ...)',
        self._model_dir,
      )


def not_finite(what: str, model_dir: str) -> UserError:
  """Returns the error that ends a run, with the checkpoint to resume from."""
  names = [os.path.join(model_dir, name) for name in folder.written(model_dir)]
  finite = next(filter(_is_finite, reversed(names)), None)
  return UserError(
    f'{what}: the run has ended. '
    + (
      f'The last finite checkpoint is {finite}; the same command resumes from '
      'it. A lower learning rate (learning_rate_schedules in gin) is most '
      'likely to help.'
      if finite
      else f'No checkpoint in {model_dir} is finite.'
    )
  )


def _is_finite(path: str) -> bool:
  """Whether a checkpoint can be read, and all its values are finite."""
  try:
    reader = tf.train.load_checkpoint(path)
    return all(
      np.isfinite(reader.get_tensor(name).astype(np.float32)).all()
      for name, kind in reader.get_variable_to_dtype_map().items()
      if kind.is_floating
    )
  except folder.UNREADABLE:
    return False


class WithHooks:
  """An estimator that trains with more hooks."""

  def __init__(
    self, estimator: Any, *hooks: tf_estimator.SessionRunHook
  ) -> None:
    self._estimator = estimator
    self._hooks = hooks

  def __getattr__(self, name: str) -> Any:
    return getattr(self._estimator, name)

  def train(self, input_fn: Any, hooks: Any = (), **kwargs: Any) -> Any:
    """Trains as the estimator does."""
    hooks = [*hooks, *self._hooks]
    return self._estimator.train(input_fn=input_fn, hooks=hooks, **kwargs)
