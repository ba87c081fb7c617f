"""Saves checkpoints by steps and by time, and never with NaN or infinity."""

import time
from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.checkpoints import folder
from synth_mtf.run import hooks

# The largest share of time that saving by time may take.
_MOST_OF_THE_TIME = 0.05


class FiniteWeights(tf_estimator.CheckpointSaverListener):
  """Prevents saving a checkpoint that contains NaN or infinity."""

  def __init__(self, model_dir: str) -> None:
    self._model_dir = model_dir

  def begin(self) -> None:
    self._finite = {
      variable.op.name: tf.reduce_all(tf.is_finite(variable))
      for variable in tf.global_variables()
      if variable.dtype.base_dtype.is_floating
    }

  def before_save(self, session: tf.Session, step: int) -> None:
    finite = session.run(self._finite)
    spoilt = sorted(name for name, is_finite in finite.items() if not is_finite)
    if spoilt:
      raise hooks.not_finite(
        f'the weights hold NaN or infinity at step {step}, in {len(spoilt)} of '
        f'{len(finite)} variables ({spoilt[0]}, ...)',
        self._model_dir,
        step,
      )


class Saver(tf.train.CheckpointSaverHook):
  """Extends the host's saver: also saves by time, and never saves NaN.

  The host saves by steps alone, so a killed run of few or slow steps loses all
  of them. Here checkpoints due by steps, and the last one, are kept; one saved
  by time is removed once the next one is complete. The host also stops a run
  whose loss is NaN, but may first save weights that are already NaN.

  The host writes the whole graph as text to the event file and beside each
  checkpoint: 40 MB each time, with the input pipelines of a mixture. This class
  does not write the graph.

  Attributes:
    seconds: minimum time between checkpoints that are not due by steps.
  """

  seconds = 60.0

  def __init__(
    self,
    checkpoint_dir: str,
    save_steps: int,
    saver: tf.train.Saver,
    listeners: Sequence[tf_estimator.CheckpointSaverListener],
  ) -> None:
    super().__init__(
      checkpoint_dir,
      save_steps=save_steps,
      saver=saver,
      listeners=[*listeners, FiniteWeights(checkpoint_dir)],
      save_graph_def=False,
    )
    self._save_steps = save_steps
    self._passing: Optional[str] = None  # the last one saved by time

  def after_create_session(self, session: tf.Session, _coord: Any) -> None:
    """Saves the step at which this process starts, as the host does."""
    step = session.run(self._global_step_tensor)
    # A resumed run saves at the same steps as an uninterrupted one.
    written = folder.written(self._checkpoint_dir)
    self._first_step = min([step, *map(folder.step_of, written)])
    self._last_step = step
    self._save(session, step)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    # The fetched number may be that of the previous step.
    if self._is_due(run_values.results + 1):
      step = run_context.session.run(self._global_step_tensor)
      if self._is_due(step) and self._save(run_context.session, step):
        run_context.request_stop()

  def _is_due(self, step: int) -> bool:
    return step != self._last_step and (
      self._is_due_by_steps(step) or time.monotonic() >= self._due
    )

  def _is_due_by_steps(self, step: int) -> bool:
    """Whether a save by steps has become due since the last checkpoint."""
    done, before = (
      (one - self._first_step) // self._save_steps
      for one in (step, self._last_step)
    )
    return done > before

  def _save(self, session: tf.Session, step: int) -> bool:
    stays = step == self._last_step or self._is_due_by_steps(step)
    passed = self._passing
    if passed:
      # The list written with the new checkpoint must not include it.
      kept = [path for path in self._saver.last_checkpoints if path != passed]
      self._saver.recover_last_checkpoints(kept)
    begun = time.monotonic()
    self._timer.update_last_triggered_step(step)
    should_stop = super()._save(session, step)
    now = time.monotonic()
    self._due = now + max(self.seconds, (now - begun) / _MOST_OF_THE_TIME)
    self._last_step = step
    self._passing = None if stays else f'{self._save_path}-{step}'
    if passed:
      tf.train.remove_checkpoint(passed)
    return should_stop
