"""Checks the lines that a run decodes or scores.

The host ends in a traceback if there are none, and silently cuts those that are
too long for the model.
"""

import os
from collections.abc import Sequence
from typing import Any

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError
from synth_mtf.run import model_dir
from synth_mtf.run.config import RunConfig


def check(run: RunConfig) -> None:
  """Checks the files that a mode reads and the places that it writes to.

  Raises:
    UserError: a file is missing, empty or not UTF-8, a line is longer than the
      model, inputs and targets do not pair, or outputs cannot be written.
  """
  if run.mode == 'infer':
    decode = gin.get_bindings(utils.infer_model, resolve_references=False)
    if 'decode_fn' in decode and not decode['decode_fn'].selector.endswith(
      'decode_from_file'
    ):
      return  # it reads other inputs
    files = gin.get_bindings(utils.decode_from_file)
    _check_lines('decode_from_file.input_filename', files, 'inputs', run)
    _check_output('decode_from_file.output_filename', files)
  elif run.mode == 'score_from_strings':
    _check_scoring(run)
  elif run.mode.startswith('export') and not run.export_path:
    raise UserError(
      'utils.run.export_path is not set: give the folder to export to, '
      '--gin_param="utils.run.export_path = \'exported\'".'
    )


def _check_scoring(run: RunConfig) -> None:
  given = gin.get_bindings(utils.score_from_strings)
  targets = _check_lines('score_from_strings.targets', given, 'targets', run)
  if given.get('inputs') is not None:
    inputs = _check_lines('score_from_strings.inputs', given, 'inputs', run)
    if targets % inputs and targets != 1:
      raise UserError(
        f'score_from_strings has {inputs} inputs and {targets} targets: '
        'expected as many targets, a multiple for each input in turn, or one '
        'for all.'
      )
  scores = gin.get_bindings(utils.save_scores)
  if scores.get('scores_filename') is not None:
    _check_output('save_scores.scores_filename', scores)


def _given(setting: str, bindings: dict[str, Any]) -> Any:
  value = bindings.get(setting.rpartition('.')[2])
  if not value or value is gin.REQUIRED:
    raise UserError(f'{setting} is not set: give the path of a text file.')
  return value


def _check_lines(
  setting: str, bindings: dict[str, Any], side: str, run: RunConfig
) -> int:
  """Checks the lines of a file, or of a list, and returns their number."""
  given = _given(setting, bindings)
  lines = list(given)
  if isinstance(given, str):
    try:
      lines = utils.get_inputs_from_file(given)
    except UnicodeDecodeError as error:
      raise UserError(
        f'{setting}: {given} is not UTF-8 (byte {error.start}: {error.reason}).'
        ' Convert it, for instance with `iconv -f latin1 -t utf-8`.'
      ) from error
    except tf.errors.OpError as error:
      raise UserError(
        f'{setting} = {given!r} cannot be read: {error.message}. Give the path '
        'of a text file with one input a line.'
      ) from error
  if not lines:
    raise UserError(f'{setting} = {given!r} is empty; expected lines of text.')
  if run.vocabulary is not None and run.lengths:
    _check_lengths(setting, lines, side, run)
  return len(lines)


def _check_lengths(
  setting: str, lines: Sequence[str], side: str, run: RunConfig
) -> None:
  longest = (run.lengths or {})[side]
  encoder = run.vocabularies[('inputs', 'targets').index(side)]
  ending = 0 if side == 'inputs' and run.model_type == 'lm' else 1
  faults = []
  for number, line in enumerate(lines, 1):
    # No vocabulary makes more pieces than bytes, and a space before them.
    if len(line.encode()) + 1 + ending > longest:
      count = len(encoder.encode(line.strip())) + ending
      if count > longest:
        faults.append(f'line {number} has {count} tokens')
  if faults:
    raise UserError(
      f'{setting}: the model takes {longest} tokens, and would cut the rest of '
      f'{len(faults)} lines ({", ".join(faults[:5])}). Shorten them, or raise '
      f'{side!r} of utils.run.sequence_length (as far as max_length goes).'
    )


def _check_output(setting: str, bindings: dict[str, Any]) -> None:
  path = _given(setting, bindings)
  model_dir.check_writable(os.path.dirname(path) or '.', setting)
