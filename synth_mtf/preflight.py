"""What is checked between the parsing of gin and the first step of a run.

The host waits for ever for a checkpoint that does not come, or starts again
from step 0 over the ones that are there. These checks say so instead.
"""

import os
from collections.abc import Mapping
from typing import Any, Optional

import gin
import tensorflow.compat.v1 as tf
from absl import flags
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError


def check_run(config: Mapping[Any, Any]) -> None:
  """Checks the run that gin describes; a finalize hook of gin.

  Args:
    config: gin's bindings, as every finalize hook gets them.

  Raises:
    UserError: the run cannot do what it is asked to.
  """
  del config  # get_bindings also resolves macros.
  run = gin.get_bindings(utils.run)
  mode = run.get('mode', 'train')
  model_dir = flags.FLAGS.model_dir
  if mode == 'train':
    _check_resume(model_dir)
    _check_init_checkpoint(run.get('init_checkpoint'))
  else:
    _check_has_checkpoint(model_dir, mode)


def _check_resume(model_dir: str) -> None:
  """Refuses to start at step 0 over checkpoints that are there."""
  written = _checkpoints(model_dir)
  index = os.path.join(model_dir, 'checkpoint')
  if written and not tf.io.gfile.exists(index):
    raise UserError(
      f'{model_dir} holds {written[-1]}, but the file {index} that points at '
      'it is missing: training would start again at step 0 and overwrite it. '
      f'Write the line `model_checkpoint_path: "{written[-1]}"` into that file '
      'to resume, or choose another --model_dir.'
    )


def _check_init_checkpoint(path: Optional[str]) -> None:
  if path and not tf.train.checkpoint_exists(path):
    raise UserError(
      f'utils.run.init_checkpoint: there is no checkpoint {path}; expected a '
      'path without the .index, such as <folder>/model.ckpt-1000.'
      + _found(os.path.dirname(path))
    )


def _check_has_checkpoint(model_dir: str, mode: str) -> None:
  if not _checkpoints(model_dir):
    raise UserError(
      f'mode {mode!r} needs a checkpoint, and --model_dir {model_dir} '
      + ('has none.' if tf.io.gfile.isdir(model_dir) else 'does not exist.')
      + ' Give the folder of a run that has trained.'
    )


def _found(folder: str) -> str:
  written = _checkpoints(folder)
  return f' {folder} holds {", ".join(written)}.' if written else ''


def _checkpoints(folder: str) -> list[str]:
  """Returns the names of a folder's checkpoints, in order of their steps."""
  files = tf.io.gfile.glob(os.path.join(folder, 'model.ckpt-*.index'))
  names = [os.path.basename(path)[: -len('.index')] for path in files]
  return sorted(names, key=utils.get_step_from_checkpoint_path)
