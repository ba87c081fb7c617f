"""Checks what evaluation, decoding, scoring and export read and write.

Without a checkpoint, the host would read newly initialized weights; for a
missing step, it would silently use the nearest checkpoint. It fails with a
traceback on a file without lines, and silently skips a blank last line and
truncates lines that are too long for the model.
"""

import glob
import os
from typing import Any

import gin
import tensorflow.compat.v1 as tf
from absl import logging
from mesh_tensorflow.transformer import utils

from synth_mtf import atomic
from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.run.config import RunConfig

# The settings that a mode reads lines from, of inputs or targets, and those
# that it writes to.
_FILES = {
  'infer': {
    'decode_from_file.input_filename': 'inputs',
    'decode_from_file.output_filename': '',
  },
  'score_from_strings': {
    'score_from_strings.targets': 'targets',
    'score_from_strings.inputs': 'inputs',
    'save_scores.scores_filename': '',
  },
}
_OPTIONAL = ('score_from_strings.inputs', 'save_scores.scores_filename')


def checkpoints(run: RunConfig) -> list[str]:
  """Returns the paths of the checkpoints that a run reads, at least one."""
  written = folder.written(run.model_dir)
  if not written:
    lost = ', '.join(folder.unfinished(run.model_dir))
    raise UserError(
      f'mode {run.mode!r} needs a checkpoint, and --model_dir {run.model_dir} '
      f'has none{lost and f" ({lost} lacks its .index file)"}. Give the folder '
      'of a run that has trained.'
    )
  exports = run.mode.startswith('export')
  setting = 'export_checkpoint_step' if exports else 'eval_checkpoint_step'
  steps = getattr(run, setting)
  try:
    # Without a step, an export reads the latest checkpoint. Other modes wait
    # for new ones, which they find through the same file `checkpoint`.
    if steps is None or steps == -1 or (exports and not steps):
      names = [os.path.basename(folder.latest(run.model_dir) or '')]
    else:
      names = _chosen(run.model_dir, written, steps)
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


def _chosen(model_dir: str, written: list[str], steps: Any) -> list[str]:
  iterator = gin.get_bindings(utils.get_checkpoint_iterator)
  if steps == 'all':
    since = iterator.get('skip_until', 0)
    lost = folder.unfinished(model_dir)
    names = [
      name
      for name in written
      if name not in lost and folder.step_of(name) > since
    ]
    if lost:  # the host would fail on it
      logging.warning('skipped, since not complete: %s', ', '.join(lost))
      with gin.unlock_config():
        gin.bind_parameter(
          'mesh_tensorflow.transformer.utils.run.eval_checkpoint_step',
          list(map(folder.step_of, names)),
        )
    if not names:
      raise ValueError(
        f'none is later than get_checkpoint_iterator.skip_until = {since}'
      )
    return names
  wanted = steps if isinstance(steps, (list, tuple)) else [steps]
  if not wanted or not all(type(step) is int for step in wanted):
    raise ValueError(
      "expected a step, a list of steps, 'all', or -1 for the latest"
    )
  if iterator.get('find_closest'):
    return written
  names = [f'model.ckpt-{step}' for step in wanted]
  missing = [name for name in names if name not in written]
  if missing:
    raise ValueError(
      f'there is no {", ".join(missing)} (to take the nearest one, give '
      '--gin_param="get_checkpoint_iterator.find_closest = True")'
    )
  return names


def check_files(run: RunConfig) -> None:
  """Checks the files that a mode reads and the paths that it writes to."""
  if run.mode.startswith('export') and not run.export_path:
    raise UserError(
      'utils.run.export_path is not set: give the folder to export to, '
      '--gin_param="utils.run.export_path = \'exported\'".'
    )
  infer = gin.get_bindings(utils.infer_model, resolve_references=False)
  decode = infer.get('decode_fn')
  if (
    run.mode == 'infer'
    and decode
    and not decode.selector.endswith('decode_from_file')
  ):
    return  # another function reads other inputs
  for setting, side in _FILES.get(run.mode, {}).items():
    function, _, parameter = setting.rpartition('.')
    given = gin.get_bindings(function).get(parameter)
    if given is None and setting in _OPTIONAL:
      continue
    if not given or given is gin.REQUIRED:
      raise UserError(f'{setting} is not set: give the path of a text file.')
    if side:
      _check_lines(setting, given, side, run)
    else:
      _check_output(setting, given)


def _check_lines(setting: str, given: Any, side: str, run: RunConfig) -> None:
  """Checks the lines of a file or list."""
  lines = given
  if isinstance(given, str):
    try:
      lines = utils.get_inputs_from_file(given)
      with tf.io.gfile.GFile(given) as file:
        number = sum(1 for _ in file)
    except (UnicodeDecodeError, tf.errors.OpError) as error:
      raise UserError(
        f'{setting} = {given!r} cannot be read: {error}. Give the path of a '
        'text file in UTF-8, with one input a line.'
      ) from error
    if number > len(lines) > 0:
      logging.warning('%s:%d: skipped the blank last line', given, number)
  if not any(map(str.strip, lines)):
    raise UserError(f'{setting} = {given!r} is empty; expected lines of text.')
  if run.vocabulary is None or not run.lengths:
    return
  longest = run.lengths[side]
  encoder = run.vocabularies[('inputs', 'targets').index(side)]
  ending = 0 if side == 'inputs' and run.model_type == 'lm' else 1
  counts = [len(encoder.encode(line.strip())) + ending for line in lines]
  faults = [
    f'line {number} has {count} tokens'
    for number, count in enumerate(counts, 1)
    if count > longest
  ]
  if faults:
    raise UserError(
      f'{setting}: the model takes {longest} tokens, and would cut the rest of '
      f'{len(faults)} lines ({", ".join(faults[:5])}). Shorten them, or raise '
      f'{side!r} of utils.run.sequence_length (as far as max_length goes).'
    )


def _check_output(setting: str, path: str) -> None:
  # T5 appends the step to the names of decoded files.
  for taken in [path, *glob.glob(f'{glob.escape(path)}-*')]:
    can_write = os.access(taken, os.W_OK) and not os.path.isdir(taken)
    if os.path.exists(taken) and not can_write:
      raise UserError(f'{setting}: {taken} is not a file that can be written')
  atomic.check_writable(os.path.dirname(path) or '.', setting)
