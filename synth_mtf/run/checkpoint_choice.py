"""Which checkpoints a run reads, and that each of them is there.

Where the host finds none it measures, decodes or exports freshly drawn weights,
and for a step that is not there it silently takes the nearest one.
"""

import os
from collections.abc import Collection, Mapping
from typing import Any

import gin
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError

_LAST = -1
_ALL = 'all'
_ONE_AT_A_TIME = ('score_from_strings', 'score_from_dataset')


def check(model_dir: str, mode: str, run: Mapping[str, Any]) -> list[str]:
  """Checks that there is what a run reads that does not train.

  Args:
    model_dir: the folder of the checkpoints.
    mode: as in `utils.run.mode`.
    run: gin's bindings of `utils.run`.

  Returns:
    The paths of the checkpoints, at least one.

  Raises:
    UserError: one that was asked for, or the pointer to the latest, is missing.
  """
  written = folder.written(model_dir)
  if not written:
    lost = folder.without_index(model_dir)
    raise UserError(
      f'mode {mode!r} needs a checkpoint, and --model_dir {model_dir} has none'
      + (f' ({", ".join(lost)} lacks its .index file)' if lost else '')
      + '. Give the folder of a run that has trained.'
    )
  setting = _setting(mode)
  names = _chosen(model_dir, setting, run.get(setting), written)
  if mode in _ONE_AT_A_TIME and (run.get(setting) is None or len(names) > 1):
    raise UserError(
      f'mode {mode!r} reads one checkpoint, but {_shown(setting, run)}: give '
      f'--gin_param="utils.run.{setting} = -1" for the latest, or a step.'
      + folder.holding(model_dir)
    )
  return [os.path.join(model_dir, name) for name in names]


def _setting(mode: str) -> str:
  exports = mode.startswith('export')
  return 'export_checkpoint_step' if exports else 'eval_checkpoint_step'


def _chosen(
  model_dir: str, setting: str, steps: Any, written: Collection[str]
) -> list[str]:
  if steps == _ALL:
    return _all(model_dir, written)
  # An export takes the latest where it is told nothing; the others wait for
  # checkpoints to come, and are told of each by the same pointer.
  if (
    steps is None or steps == _LAST or (setting.startswith('ex') and not steps)
  ):
    latest = folder.latest(model_dir)
    return [os.path.basename(latest)] if latest else []
  wanted = list(steps) if isinstance(steps, (list, tuple)) else [steps]
  if not wanted or not all(type(step) is int for step in wanted):
    raise UserError(
      f'utils.run.{setting} = {steps!r}: expected a step, a list of steps, '
      f"'all', or -1 for the latest.{folder.holding(model_dir)}"
    )
  if gin.get_bindings(utils.get_checkpoint_iterator).get('find_closest'):
    return list(written)
  missing = [n for n in wanted if f'model.ckpt-{n}' not in written]
  if missing:
    raise UserError(
      f'utils.run.{setting} = {steps!r}: there is no '
      + ', '.join(f'model.ckpt-{step}' for step in missing)
      + f'.{folder.holding(model_dir)} The nearest one is taken with '
      '--gin_param="get_checkpoint_iterator.find_closest = True".'
    )
  return [f'model.ckpt-{step}' for step in wanted]


def _all(model_dir: str, written: Collection[str]) -> list[str]:
  """All that are there; the host would stumble over one without its index."""
  since = gin.get_bindings(utils.get_checkpoint_iterator).get('skip_until', 0)
  lost = [
    n for n in folder.without_index(model_dir) if folder.step_of(n) > since
  ]
  if lost:
    raise UserError(
      f'all checkpoints of {model_dir} are asked for, but {", ".join(lost)} '
      'lacks its .index file: remove its other files, or name the steps.'
      + folder.holding(model_dir)
    )
  names = [name for name in written if folder.step_of(name) > since]
  if not names:
    raise UserError(
      f'of the checkpoints of {model_dir} none is later than step {since}, '
      "where 'all' begins (get_checkpoint_iterator.skip_until)."
      + folder.holding(model_dir)
    )
  return names


def _shown(setting: str, run: Mapping[str, Any]) -> str:
  return f'utils.run.{setting} is {run.get(setting)!r}'
