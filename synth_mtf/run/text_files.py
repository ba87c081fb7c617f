"""Checks the lines that a run decodes or scores.

The host ends in a traceback if there are none, and silently cuts those that are
too long for the model.
"""

import os
from collections.abc import Sequence
from typing import Optional, Union

import gin
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError
from synth_mtf.run.config import RunConfig

_SHOWN = 5
# In a gin file of T5, where a run names its own file.
_PLACEHOLDER = '/path/to/'


def check(run: RunConfig) -> None:
  """Checks the files that a mode reads and the places that it writes to.

  Raises:
    UserError: a file is missing, empty or not UTF-8, a line is longer than the
      model, inputs and targets do not pair, or outputs cannot be written.
  """
  if run.mode == 'infer':
    _check_decoding(run)
  elif run.mode == 'score_from_strings':
    _check_scoring(run)
  elif run.mode.startswith('export') and not run.export_path:
    raise UserError(
      'utils.run.export_path is not set: give the folder to export to, '
      '--gin_param="utils.run.export_path = \'exported\'".'
    )


def _check_decoding(run: RunConfig) -> None:
  decode = gin.get_bindings(utils.infer_model, resolve_references=False).get(
    'decode_fn'
  )
  if decode is not None and decode.selector.rpartition('.')[2] != (
    'decode_from_file'
  ):
    return  # it reads other inputs
  files = gin.get_bindings(utils.decode_from_file)
  owner = 'decode_from_file'
  lines = _lines(f'{owner}.input_filename', files.get('input_filename'))
  _check_lengths(f'{owner}.input_filename', lines, 'inputs', run)
  _check_output(f'{owner}.output_filename', files.get('output_filename'))


def _check_scoring(run: RunConfig) -> None:
  given = gin.get_bindings(utils.score_from_strings)
  is_pair = given.get('inputs') is not None
  names = ('inputs', 'targets') if is_pair else ('targets',)
  lines = {
    name: _lines(f'score_from_strings.{name}', given.get(name))
    for name in names
  }
  for name in names:
    _check_lengths(f'score_from_strings.{name}', lines[name], name, run)
  counts = [len(lines[name]) for name in names]
  if is_pair and (counts[1] % counts[0] and counts[1] != 1):
    raise UserError(
      f'score_from_strings has {counts[0]} inputs and {counts[1]} targets: '
      'expected as many targets, a multiple for each input in turn, or one for '
      'all.'
    )
  scores = gin.get_bindings(utils.save_scores).get('scores_filename')
  if scores is not None:
    _check_output('save_scores.scores_filename', scores)


def _lines(name: str, given: Union[str, Sequence[str], None]) -> Sequence[str]:
  """The lines of a file as the host reads them, or a list as it is."""
  if given is None or given is gin.REQUIRED:
    raise UserError(f'{name} is not set: give the path of a text file.')
  if not isinstance(given, str):
    lines = list(given)
  elif not tf.io.gfile.exists(given) or tf.io.gfile.isdir(given):
    hint = ' (a placeholder of T5)' if given.startswith(_PLACEHOLDER) else ''
    raise UserError(
      f'{name}: there is no file {given}{hint}. Give the path of a text file '
      'with one input a line.'
    )
  else:
    try:
      lines = utils.get_inputs_from_file(given)
    except UnicodeDecodeError as error:
      raise UserError(
        f'{name}: {given} is not UTF-8 (byte {error.start}: {error.reason}). '
        'Convert it, for instance with `iconv -f latin1 -t utf-8`.'
      ) from error
    except tf.errors.OpError as error:
      raise UserError(f'{name}: {given} cannot be read: {error.message}') from (
        error
      )
  if not lines:
    raise UserError(f'{name}: {given!r} is empty; expected one input a line.')
  return lines


def _check_lengths(
  name: str, lines: Sequence[str], side: str, run: RunConfig
) -> None:
  if run.vocabulary is None or not run.lengths:
    return
  longest = run.lengths[side]
  encoder = run.vocabularies[('inputs', 'targets').index(side)]
  ending = 0 if side == 'inputs' and run.model_type == 'lm' else 1
  faults = []
  for number, line in enumerate(lines, 1):
    # No vocabulary makes more pieces than bytes, and a space before them.
    if len(line.encode()) + 1 + ending > longest:
      count = len(encoder.encode(line.strip())) + ending
      if count > longest:
        faults.append(f'line {number} has {count}')
  if faults:
    more = len(faults) - _SHOWN
    raise UserError(
      f'{name}: {", ".join(faults[:_SHOWN])}'
      + (f', and {more} more lines' if more > 0 else '')
      + f' tokens; the model takes {longest} and would cut the rest. '
      f'Shorten them, or raise {side!r} of utils.run.sequence_length (as far '
      'as max_length goes).'
    )


def _check_output(name: str, path: Optional[str]) -> None:
  """Checks that the folder of an output exists or can be made."""
  if not path or path is gin.REQUIRED:
    raise UserError(f'{name} is not set: give the path to write to.')
  if '://' in path:
    return
  folder = os.path.dirname(path) or '.'
  while not os.path.lexists(folder):
    folder = os.path.dirname(folder) or '.'
  if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
    raise UserError(
      f'{name} = {path} cannot be written: {folder} is not a folder that you '
      'may write to.'
    )
