"""Chooses the checkpoints that evaluation, decoding and export read.

Without a checkpoint, the host would evaluate, decode or export newly
initialized weights; for a missing step, it would silently use the nearest one.
"""

import os
from collections.abc import Sequence
from typing import Any

import gin
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.run.config import RunConfig


def check(run: RunConfig) -> list[str]:
  """Returns the paths of the checkpoints that a run reads, at least one."""
  lost = folder.without_index(run.model_dir)
  if not folder.written(run.model_dir):
    raise UserError(
      f'mode {run.mode!r} needs a checkpoint, and --model_dir {run.model_dir} '
      'has none'
      + (f' ({", ".join(lost)} lacks its .index file)' if lost else '')
      + '. Give the folder of a run that has trained.'
    )
  exports = run.mode.startswith('export')
  setting = 'export_checkpoint_step' if exports else 'eval_checkpoint_step'
  steps = getattr(run, setting)
  try:
    # Without a step, an export reads the latest checkpoint. Other modes wait
    # for new ones, which they find through the same file `checkpoint`.
    if steps is None or steps == -1 or (exports and not steps):
      names = [os.path.basename(folder.latest(run.model_dir) or '')]
    elif steps == 'all':
      names = _all(run.model_dir, lost)
    else:
      names = _of_steps(run.model_dir, steps)
    if run.mode.startswith('score_from') and (steps is None or len(names) > 1):
      raise ValueError(
        f'mode {run.mode!r} reads one checkpoint; give -1 for the latest'
      )
  except ValueError as fault:
    raise UserError(
      f'utils.run.{setting} = {steps!r}: {fault}.'
      + folder.holding(run.model_dir)
    ) from None
  return [os.path.join(run.model_dir, name) for name in names]


def _of_steps(model_dir: str, steps: Any) -> list[str]:
  wanted = list(steps) if isinstance(steps, (list, tuple)) else [steps]
  if not wanted or not all(type(step) is int for step in wanted):
    raise ValueError(
      "expected a step, a list of steps, 'all', or -1 for the latest"
    )
  written = folder.written(model_dir)
  if gin.get_bindings(utils.get_checkpoint_iterator).get('find_closest'):
    return written
  names = [f'model.ckpt-{step}' for step in wanted]
  missing = [name for name in names if name not in written]
  if missing:
    raise ValueError(
      f'there is no {", ".join(missing)} (to take the nearest one, give '
      '--gin_param="get_checkpoint_iterator.find_closest = True")'
    )
  return names


def _all(model_dir: str, without_index: Sequence[str]) -> list[str]:
  """Returns all checkpoints; the host fails on one without its index."""
  since = gin.get_bindings(utils.get_checkpoint_iterator).get('skip_until', 0)
  lost = [name for name in without_index if folder.step_of(name) > since]
  if lost:
    raise ValueError(
      f'{", ".join(lost)} lacks its .index file; remove its other files'
    )
  names = [n for n in folder.written(model_dir) if folder.step_of(n) > since]
  if not names:
    raise ValueError(
      f'none is later than get_checkpoint_iterator.skip_until = {since}'
    )
  return names
