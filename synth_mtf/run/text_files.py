"""The lines that a run decodes or scores, checked before it reads them.

The host ends in a traceback where there are none, and cuts those that are too
long for the model without a word.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

import gin
import seqio
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf.errors import UserError

_SHOWN = 5
# What a gin file of T5 names where a run is to name its own.
_PLACEHOLDER = '/path/to/'


def check(mode: str, run: Mapping[str, Any]) -> None:
  """Checks the files that a mode reads and the places that it writes to.

  Args:
    mode: as in `utils.run.mode`.
    run: gin's bindings of `utils.run`.

  Raises:
    UserError: a file is missing, empty or not UTF-8, a line is longer than the
      model, inputs and targets do not pair, or outputs cannot be written.
  """
  if mode == 'infer':
    _check_decoding(run)
  elif mode == 'score_from_strings':
    _check_scoring(run)
  elif mode.startswith('export') and not run.get('export_path'):
    raise UserError(
      'utils.run.export_path is not set: give the folder to export to, '
      '--gin_param="utils.run.export_path = \'exported\'".'
    )


def _check_decoding(run: Mapping[str, Any]) -> None:
  decode = gin.get_bindings(utils.infer_model, resolve_references=False).get(
    'decode_fn'
  )
  if decode is not None and decode.selector.rpartition('.')[2] != (
    'decode_from_file'
  ):
    return  # its inputs are its own
  files = gin.get_bindings(utils.decode_from_file)
  owner = 'decode_from_file'
  lines = _lines(f'{owner}.input_filename', files.get('input_filename'))
  _check_lengths(f'{owner}.input_filename', lines, 'inputs', run)
  _check_output(f'{owner}.output_filename', files.get('output_filename'))


def _check_scoring(run: Mapping[str, Any]) -> None:
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
  name: str, lines: Sequence[str], side: str, run: Mapping[str, Any]
) -> None:
  lengths, vocabulary = run['sequence_length'], run.get('vocabulary')
  if vocabulary is None:
    return
  longest = lengths if isinstance(lengths, int) else lengths[side]
  encoder = _vocabulary(vocabulary, side)
  ending = 0 if side == 'inputs' and run.get('model_type') == 'lm' else 1
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
      + f' tokens; the model takes {longest} and would see their beginnings. '
      f'Shorten them, or raise {side!r} of utils.run.sequence_length (as far '
      'as max_length goes).'
    )


def _vocabulary(vocabulary: Any, side: str) -> seqio.Vocabulary:
  if side == 'inputs':
    return utils.inputs_vocabulary(vocabulary)
  return utils.targets_vocabulary(vocabulary)


def _check_output(name: str, path: Union[str, None]) -> None:
  """Checks that the folder of an output is there or can be made."""
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
