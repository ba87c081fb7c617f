"""Progress of a training run that a person can read.

Mesh-TensorFlow's own run shows nothing but TensorFlow's log. In gin:

    import synth_mtf.progress
    utils.run.train_model_fn = @synth_mtf.train_with_progress
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Optional

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.checkpoints import folder
from synth_mtf.host import events
from synth_mtf.run import (
  attention_summaries,
  output,
  repeatable,
  saving,
  stopping,
)
from synth_mtf.run.console import Console, TrainingProgress
from synth_mtf.run.finite import FiniteLossHook, FiniteWeightsListener
from synth_mtf.run.hooks import CountingHook

Listener = Callable[[TrainingProgress], None]

_SECONDS_BETWEEN_REPORTS = 0.5
_listener: Optional[Listener] = None


def listen(listener: Listener) -> None:
  """Sends the progress of this process's training to `listener`.

  Without a listener it is shown to the person.
  """
  global _listener
  _listener = listener


class ProgressHook(CountingHook):
  """Reports step, loss and speed while an estimator trains."""

  def __init__(self, total: int, listener: Listener) -> None:
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
    """Reports, if the last report was some time ago."""
    super().after_run(run_context, run_values)
    self._losses.append(float(run_values.results))
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


class _WithHooks:
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


@gin.configurable(module='synth_mtf')
def train_with_progress(
  estimator: Any,
  vocabulary: Any,
  sequence_length: Any,
  batch_size: int,
  train_dataset_fn: Callable[..., Any],
  train_steps: int,
  ensemble_inputs: Optional[int],
  seed: Optional[int] = None,
  save_seconds: float = 60.0,
  attention_every: Optional[int] = None,
  **kwargs: Any,
) -> None:
  """The host's `train_model`, which a person can watch, stop and repeat.

  It shows its progress. It saves by time, too, and when Ctrl-C or SIGTERM ends
  it. It ends where the loss is no number any more, and saves no such weights.
  With a seed it repeats.

  Args:
    estimator: as in mesh_tensorflow.transformer.utils.train_model, and so are
      all other arguments but `seed`, `save_seconds` and `attention_every`.
    vocabulary: see there.
    sequence_length: see there.
    batch_size: see there.
    train_dataset_fn: see there.
    train_steps: see there.
    ensemble_inputs: see there.
    seed: an integer; with it, initial values and dropout are the same in each
      run. That also takes the environment variable PYTHONHASHSEED, because the
      host seeds each operation by the hash of its name, and
      `mesh_train_dataset_fn.seed` for the order of the data.
    save_seconds: the least time between two checkpoints that are not due by
      `utils.run.save_checkpoints_steps`. What takes long to save is saved less
      often: no more than a twentieth of the time goes into it.
    attention_every: how many steps lie between two summaries of attention for
      TensorBoard (docs/figures.md); None for none, which costs nothing.
    **kwargs: see there.

  Raises:
    UserError: a seed without PYTHONHASHSEED; a loss that is not finite.
    SystemExit: a signal has ended the run, with a status of 130 or 143.
  """
  console = output.console()
  model_dir = estimator and estimator.model_dir
  with contextlib.ExitStack() as stack:
    seeded: list[tf_estimator.SessionRunHook] = []
    if seed is not None:
      repeatable.seed(estimator, seed)
      seeded = [repeatable.StepHook()]
      stack.enter_context(repeatable.drawn_by_step())
      stack.enter_context(repeatable.counted_last())
    events.without_graph(model_dir)
    stop = stack.enter_context(stopping.on_signals(console.line))
    stack.enter_context(
      saving.also_by_time(save_seconds, FiniteWeightsListener(model_dir))
    )
    hooks: list[tf_estimator.SessionRunHook] = [
      FiniteLossHook(model_dir),
      ProgressHook(train_steps, _listener or _shown_on(console)),
      stopping.StopHook(stop),
      *seeded,
    ]
    if attention_every is not None:
      watched = attention_summaries.watched(model_dir, attention_every)
      hooks.append(stack.enter_context(watched))
    utils.train_model(
      _WithHooks(estimator, *hooks),
      vocabulary,
      sequence_length,
      batch_size,
      train_dataset_fn,
      train_steps,
      ensemble_inputs,
      **kwargs,
    )
  if stop.signal is not None:
    latest = folder.written(model_dir)[-1]
    console.line(f'Stopped. {latest} is saved: the same command goes on there.')
    raise SystemExit(stop.status)


def _shown_on(console: Console) -> Listener:
  def show(progress: TrainingProgress) -> None:
    is_last = progress.step >= progress.total
    (console.finish if is_last else console.update)(str(progress))

  console.start('train')
  return show
