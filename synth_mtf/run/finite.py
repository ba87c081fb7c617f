"""Ends a training whose loss or weights are no numbers any more.

The host's own check ends it, too, but a checkpoint may be written between the
update that spoils the weights and the loss that shows it. Here no checkpoint is
written that is not finite: the last one in the folder is whole.
"""

import math
import os
from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator as tf_estimator

from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.run.hooks import CountingHook

_ADVICE = (
  'A lower learning rate (learning_rate_schedules in gin) is what most often '
  'helps.'
)


class FiniteLossHook(CountingHook):
  """Ends the run at the first loss that is not finite.

  Args:
    model_dir: where the run's checkpoints are.
  """

  def __init__(self, model_dir: str) -> None:
    self._model_dir = model_dir

  def begin(self) -> None:
    """Finds the loss, which the estimator has put in the graph."""
    super().begin()
    self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]

  def before_run(self, run_context: Any) -> tf_estimator.SessionRunArgs:
    """Asks for the loss."""
    del run_context
    return tf_estimator.SessionRunArgs(self._loss)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Looks at it.

    Raises:
      UserError: it is not finite.
    """
    super().after_run(run_context, run_values)
    loss = float(run_values.results)
    if not math.isfinite(loss):
      raise ended(f'the loss is {loss} since step {self.step}', self._model_dir)


class FiniteWeightsListener(tf_estimator.CheckpointSaverListener):
  """Lets no checkpoint be written that is not finite.

  Args:
    model_dir: where it would be written.
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
    """Checks what is to be written.

    Raises:
      UserError: some of it is not finite.
    """
    finite = session.run(self._finite)
    spoilt = sorted(name for name, is_finite in finite.items() if not is_finite)
    if spoilt:
      raise ended(
        f'the weights hold NaN or infinity at step {global_step_value}, in '
        f'{len(spoilt)} of {len(finite)} variables ({spoilt[0]}, ...)',
        self._model_dir,
      )


def ended(what: str, model_dir: str) -> UserError:
  """Returns what ends a run: what was found, and from where it can go on."""
  whole = _last_whole(model_dir)
  kept = (
    f'The last whole checkpoint is {os.path.join(model_dir, whole)}, from '
    f'which the same command goes on. {_ADVICE}'
    if whole
    else f'No checkpoint in {model_dir} is whole.'
  )
  return UserError(f'{what}: the run has ended. {kept}')


def _last_whole(model_dir: str) -> Optional[str]:
  """Returns the name of the last checkpoint whose values are all finite."""
  names = reversed(folder.written(model_dir))
  return next((n for n in names if _is_whole(os.path.join(model_dir, n))), None)


def _is_whole(path: str) -> bool:
  try:
    reader = tf.train.load_checkpoint(path)
    return all(
      np.isfinite(reader.get_tensor(name).astype(np.float32)).all()
      for name, kind in reader.get_variable_to_dtype_map().items()
      if kind.is_floating
    )
  except folder.UNREADABLE:
    return False
