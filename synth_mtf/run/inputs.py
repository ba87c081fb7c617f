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
import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging
from mesh_tensorflow.transformer import utils

from synth_mtf import atomic
from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig

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
  found = {}
  for setting, side in _FILES.get(run.mode, {}).items():
    function, _, parameter = setting.rpartition('.')
    given = gin.get_bindings(function).get(parameter)
    if given is None and setting in _OPTIONAL:
      continue
    if not given or given is gin.REQUIRED:
      raise UserError(f'{setting} is not set: give the path of a text file.')
    if side:
      found[setting] = _lines(setting, given)
    else:
      _check_output(setting, given)
  _check_lengths(found, run)


def _lines(setting: str, given: Any) -> list[str]:
  """Returns the lines of a file or list, at least one."""
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
  if not isinstance(lines, (list, tuple)) or {*map(type, lines)} - {str}:
    raise UserError(
      f'{setting} = {given!r}: expected a path or a list of strings.'
    )
  if not any(map(str.strip, lines)):
    raise UserError(f'{setting} = {given!r} is empty; expected lines of text.')
  return [*lines]


def _check_lengths(found: dict[str, list[str]], run: RunConfig) -> None:
  """Checks the number of tokens of each line, or pair that the host joins."""
  targets, inputs = (*map(len, found.values()), 1, 1)[:2]
  if targets % inputs and targets != 1:
    raise UserError(
      f'score_from_strings: {targets} targets and {inputs} inputs; expected as '
      'many targets as inputs, a multiple of that, or one target for all.'
    )
  if run.vocabulary is None or not run.lengths:
    return
  is_lm = run.model_type == 'lm'
  encoder = run.vocabularies[0]  # the host also encodes targets with it
  counts = {
    setting: [len(encoder.encode(line.strip())) + (not is_lm) for line in lines]
    for setting, lines in found.items()
  }
  if is_lm and len(counts) == 2:  # an input and its target share a row
    own, prefixes = counts.values()
    pairs = np.add(own, np.repeat(prefixes, max(targets // inputs, 1)))
    counts = {'score_from_strings.targets': pairs.tolist()}
  for setting, tokens in counts.items():
    side = _FILES[run.mode][setting]
    longest = run.lengths[side]
    faults = [
      f'line {number} has {count} tokens'
      for number, count in enumerate(tokens, 1)
      if count > longest
    ]
    if faults:
      raise UserError(
        f'{setting}: the model takes {longest} tokens, and would cut the rest '
        f'of {len(faults)} lines ({", ".join(faults[:5])}). Shorten them, or '
        f'raise {side!r} of utils.run.sequence_length (as far as max_length '
        'goes).'
      )


def _check_output(setting: str, path: str) -> None:
  # T5 appends the step to the names of decoded files.
  for taken in [path, *glob.glob(f'{glob.escape(path)}-*')]:
    can_write = os.access(taken, os.W_OK) and not os.path.isdir(taken)
    if os.path.exists(taken) and not can_write:
      raise UserError(f'{setting}: {taken} is not a file that can be written')
  atomic.check_writable(os.path.dirname(path) or '.', setting)
