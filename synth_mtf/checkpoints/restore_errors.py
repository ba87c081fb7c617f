"""What an error means that occurs while a run restores a checkpoint."""

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

  A checkpoint of another shape is restored without complaint into resource
  variables, and the first operation that reads them fails: only a comparison
  with the graph tells.

  Args:
    model_dir: the folder whose checkpoints the run restores.
  """

  def explain(error: BaseException) -> Optional[str]:
    if not (isinstance(error, _READING) or _INVALID in str(error)):
      return None
    damage = folder.damage(model_dir) or _init_checkpoint_damage()
    if damage or not isinstance(error, tf.errors.OpError):
      return damage or None
    try:
      latest = folder.latest(model_dir)
    except UserError as fault:
      return str(fault)
    if not latest or error.op is None:
      return None
    return (
      comparison.of_graph(error.op.graph, Checkpoint(latest)).message() or None
    )

  return explain


def _init_checkpoint_damage() -> str:
  path = gin.get_bindings(utils.run).get('init_checkpoint')
  if not path or folder.is_complete(path):
    return ''
  return (
    f'utils.run.init_checkpoint = {path} is damaged (truncated or altered): '
    'take another one, or a copy that is complete.'
  )
