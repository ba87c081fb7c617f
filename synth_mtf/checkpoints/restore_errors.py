"""Explains errors that occur while a run restores a checkpoint."""

from collections.abc import Callable
from typing import Optional

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import comparison, folder
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError

# What reading a damaged checkpoint raises, besides a ValueError with this text.
_READING = (tf.errors.OpError, IndexError, RuntimeError)
_INVALID = 'not a valid checkpoint'


def explainer(model_dir: str) -> Callable[[BaseException], Optional[str]]:
  """Returns a function that explains an error by the checkpoints of a run.

  A checkpoint of another shape is restored into resource variables without
  complaint, and the first operation that reads them fails; only a comparison
  with the graph shows why.

  Args:
    model_dir: the folder whose checkpoints the run restores.
  """

  def explain(error: BaseException) -> Optional[str]:
    if not (isinstance(error, _READING) or _INVALID in str(error)):
      return None
    message = folder.damage(model_dir) or _init_checkpoint_damage()
    if message or not isinstance(error, tf.errors.OpError):
      return message
    try:
      latest = folder.latest(model_dir)
      if latest and error.op is not None:
        with error.op.graph.as_default():
          comparison.require_same(tf.global_variables(), Checkpoint(latest))
    except UserError as fault:
      return str(fault)
    return None

  return explain


def _init_checkpoint_damage() -> Optional[str]:
  path = gin.get_bindings(utils.run).get('init_checkpoint')
  if not path or folder.is_complete(path):
    return None
  return (
    f'utils.run.init_checkpoint = {path} is damaged (truncated or altered): '
    'use another checkpoint, or an intact copy.'
  )
