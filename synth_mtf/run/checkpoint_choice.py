"""Which checkpoints a run reads that does not train.

Where the host finds none it measures, decodes or exports fresh weights, and for
a step that is missing it silently takes the nearest one.
"""

import os
from collections.abc import Collection
from typing import Any

import gin
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.run.config import RunConfig

_ONE_AT_A_TIME = ('score_from_strings', 'score_from_dataset')


def check(run: RunConfig) -> list[str]:
  """Checks that the checkpoints exist that a run reads.

  Returns:
    Their paths, at least one.

  Raises:
    UserError: a checkpoint, or the pointer to the latest, is missing.
  """
  written = folder.written(run.model_dir)
  if not written:
    lost = folder.without_index(run.model_dir)
    raise UserError(
      f'mode {run.mode!r} needs a checkpoint, and --model_dir {run.model_dir} '
      'has none'
      + (f' ({", ".join(lost)} lacks its .index file)' if lost else '')
      + '. Give the folder of a run that has trained.'
    )
  exports = run.mode.startswith('export')
  setting = 'export_checkpoint_step' if exports else 'eval_checkpoint_step'
  steps = getattr(run, setting)
  # An export takes the latest if no step is set; other modes wait for
  # checkpoints to come, and find them by the same pointer.
  if steps is None or steps == -1 or (exports and not steps):
    latest = folder.latest(run.model_dir)
    names = [os.path.basename(latest)] if latest else []
  elif steps == 'all':
    names = _all(run.model_dir, written)
  else:
    names = _of_steps(run.model_dir, setting, steps, written)
  if run.mode in _ONE_AT_A_TIME and (steps is None or len(names) > 1):
    raise UserError(
      f'mode {run.mode!r} reads one checkpoint, but utils.run.{setting} is '
      f'{steps!r}: give --gin_param="utils.run.{setting} = -1" for the latest, '
      'or a step.' + folder.holding(run.model_dir)
    )
  return [os.path.join(run.model_dir, name) for name in names]


def _of_steps(
  model_dir: str, setting: str, steps: Any, written: Collection[str]
) -> list[str]:
  wanted = list(steps) if isinstance(steps, (list, tuple)) else [steps]
  if not wanted or not all(type(step) is int for step in wanted):
    raise UserError(
      f'utils.run.{setting} = {steps!r}: expected a step, a list of steps, '
      f"'all', or -1 for the latest.{folder.holding(model_dir)}"
    )
  if gin.get_bindings(utils.get_checkpoint_iterator).get('find_closest'):
    return list(written)
  names = [f'model.ckpt-{step}' for step in wanted]
  missing = [name for name in names if name not in written]
  if missing:
    raise UserError(
      f'utils.run.{setting} = {steps!r}: there is no {", ".join(missing)}.'
      f'{folder.holding(model_dir)} To take the nearest one, give '
      '--gin_param="get_checkpoint_iterator.find_closest = True".'
    )
  return names


def _all(model_dir: str, written: Collection[str]) -> list[str]:
  """All checkpoints; the host would stumble over one without its index."""
  since = gin.get_bindings(utils.get_checkpoint_iterator).get('skip_until', 0)
  lost = [
    n for n in folder.without_index(model_dir) if folder.step_of(n) > since
  ]
  if lost:
    raise UserError(
      f'all checkpoints of {model_dir} are to be read, but {", ".join(lost)} '
      'lacks its .index file: remove its other files, or name the steps.'
      + folder.holding(model_dir)
    )
  names = [name for name in written if folder.step_of(name) > since]
  if not names:
    raise UserError(
      f'no checkpoint of {model_dir} is later than step {since}, where '
      "'all' begins (get_checkpoint_iterator.skip_until)."
      + folder.holding(model_dir)
    )
  return names
