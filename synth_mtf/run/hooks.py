"""Training hooks that count steps, show progress and stop the run."""

import math
import os
import time
from collections.abc import Callable
from typing import Any, Optional

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.run.output import Console, duration

_SECONDS_BETWEEN_REPORTS = 0.5
_STEP = 'synth_mtf_step'


def fed_step() -> tf.Tensor:
  """Returns the graph's step number, a tensor that `TrainingHook` feeds."""
  if not tf.get_collection(_STEP):
    with tf.device(None), tf.control_dependencies(None):
      step = tf.placeholder_with_default(tf.zeros([], tf.int64), [])
    tf.add_to_collection(_STEP, step)
  return tf.get_collection(_STEP)[0]


class CountingHook(tf_estimator.SessionRunHook):
  """Counts completed steps in `step`.

  Fetching the graph's own count would race with its increment.
  """

  step: int

  def begin(self) -> None:
    self._counted = tf.train.get_or_create_global_step()

  def after_create_session(self, session: tf.Session, _coord: Any) -> None:
    self.step = int(session.run(self._counted))

  def after_run(self, _run_context: Any, _run_values: Any) -> None:
    self.step += 1


class TrainingHook(CountingHook):
  """Shows step, loss and speed; stops on a signal, NaN or infinity."""

  def __init__(
    self,
    model_dir: str,
    total: int,
    console: Console,
    stop_signal: Callable[[], Optional[int]],
  ) -> None:
    self._model_dir = model_dir
    self._total = total
    self._console = console
    self._stop_signal = stop_signal
    self._losses: list[float] = []  # since the last report

  def begin(self) -> None:
    super().begin()
    # The estimator has added the loss to this collection.
    self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]
    self._fed = tf.get_collection(_STEP)

  def after_create_session(self, session: tf.Session, coord: Any) -> None:
    super().after_create_session(session, coord)
    self._first_step = self.step + 1

  def before_run(self, _run_context: Any) -> tf_estimator.SessionRunArgs:
    feed = dict.fromkeys(self._fed, self.step)
    return tf_estimator.SessionRunArgs(self._loss, feed)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    super().after_run(run_context, run_values)
    loss = float(run_values.results)
    if not math.isfinite(loss):
      raise not_finite(
        f'the loss is {loss} since step {self.step}', self._model_dir, self.step
      )
    self._losses.append(loss)
    now = time.monotonic()
    if self.step == self._first_step:  # slow: it compiles and fills caches
      self._first_time = self._reported_time = now
    elif now - self._reported_time >= _SECONDS_BETWEEN_REPORTS:
      self._report(now)
    if self._stop_signal() is not None:
      run_context.request_stop()  # also saves a checkpoint

  def end(self, _session: tf.Session) -> None:
    if self._losses:
      self._report(time.monotonic())

  def _report(self, now: float) -> None:
    """Shows the mean loss since the last report.

    The host's loss is the sum over target tokens divided by the number of
    positions, padding included. The speed excludes this process's first step.
    """
    elapsed = max(now - self._first_time, 1e-9)
    speed = (self.step - self._first_step) / elapsed
    seconds_left = (self._total - self.step) / max(speed, 1e-9)
    is_last = self.step >= self._total
    (self._console.finish if is_last else self._console.update)(
      f'step {self.step}/{self._total}  '
      f'loss {sum(self._losses) / len(self._losses):.3f}  '
      f'{speed:.1f} steps/s  {duration(seconds_left)} left'
    )
    self._losses.clear()
    self._reported_time = now


def not_finite(what: str, model_dir: str, step: int) -> UserError:
  """Returns the error that ends a run and names the last finite checkpoint.

  All saved checkpoints are finite.
  """
  names = [n for n in folder.written(model_dir) if folder.step_of(n) < step]
  return UserError(
    f'{what}: the run has ended. '
    + (
      'The last finite checkpoint is '
      f'{os.path.join(model_dir, names[-1])}; the same command resumes from '
      'it. A lower learning rate (learning_rate_schedules in gin) is most '
      'likely to help.'
      if names
      else f'No checkpoint in {model_dir} is finite.'
    )
  )
