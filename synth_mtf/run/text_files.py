"""Checks the lines that a run decodes or scores.

The host fails with a traceback if there are none, and silently truncates lines
that are too long for the model.
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
  """Checks the files that a mode reads and the paths that it writes to."""
  if run.mode == 'infer':
    decode = gin.get_bindings(utils.infer_model, resolve_references=False)
    if 'decode_fn' in decode and not decode['decode_fn'].selector.endswith(
      'decode_from_file'
    ):
      return  # another function reads other inputs
    _check_lines('decode_from_file.input_filename', 'inputs', run)
    _check_output('decode_from_file.output_filename')
  elif run.mode == 'score_from_strings':
    targets = _check_lines('score_from_strings.targets', 'targets', run)
    if _value('score_from_strings.inputs') is not None:
      inputs = _check_lines('score_from_strings.inputs', 'inputs', run)
      if targets % inputs and targets != 1:
        raise UserError(
          f'score_from_strings has {inputs} inputs and {targets} targets: '
          'expected as many targets, a multiple for each input in turn, or one '
          'for all.'
        )
    if _value('save_scores.scores_filename') is not None:
      _check_output('save_scores.scores_filename')
  elif run.mode.startswith('export') and not run.export_path:
    raise UserError(
      'utils.run.export_path is not set: give the folder to export to, '
      '--gin_param="utils.run.export_path = \'exported\'".'
    )


def _value(setting: str) -> Any:
  function, _, parameter = setting.rpartition('.')
  return gin.get_bindings(function).get(parameter)


def _given(setting: str) -> Any:
  value = _value(setting)
  if not value or value is gin.REQUIRED:
    raise UserError(f'{setting} is not set: give the path of a text file.')
  return value


def _check_lines(setting: str, side: str, run: RunConfig) -> int:
  """Checks the lines of a file or list, and returns their number."""
  given = _given(setting)
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


def _check_output(setting: str) -> None:
  path = _given(setting)
  model_dir.check_writable(os.path.dirname(path) or '.', setting)
