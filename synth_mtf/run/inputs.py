"""Checks what evaluation, decoding, scoring and export read and write.

Without a checkpoint, the host would read newly initialized weights; for a
missing step, it would silently use the nearest checkpoint. It fails with a
traceback on a file without lines, and silently skips a blank last line and
truncates lines that are too long for the model.
"""

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gin
import numpy as np
from absl import logging
from mesh_tensorflow.transformer import utils

from synth_mtf.checkpoints.folder import Folder, step_of
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig
from synth_mtf.storage import atomic, filesystem

_DECODED_INPUTS = 'decode_from_file.input_filename'
_SCORED_TARGETS = 'score_from_strings.targets'
_SCORED_INPUTS = 'score_from_strings.inputs'
_SCORES = 'save_scores.scores_filename'
# The settings of the lines that a mode reads, and what the lines are.
_READ = {
  'infer': {_DECODED_INPUTS: 'inputs'},
  'score_from_strings': {_SCORED_TARGETS: 'targets', _SCORED_INPUTS: 'inputs'},
}
# The setting of the file that a mode writes.
_WRITTEN = {
  'infer': 'decode_from_file.output_filename',
  'score_from_strings': _SCORES,
}
_OPTIONAL = (_SCORED_INPUTS, _SCORES)


def checkpoints(run: RunConfig, folder: Folder) -> list[str]:
  """Returns the paths of the checkpoints that a run reads, at least one."""
  if not folder.checkpoints:
    unfinished = ', '.join(folder.unfinished)
    reason = f' ({unfinished} lacks its .index file)' if unfinished else ''
    raise UserError(
      f'mode {run.mode!r} needs a checkpoint, and --model_dir {run.model_dir} '
      f'has none{reason}. Give the folder of a run that has trained.'
    )
  is_export = run.mode.startswith('export')
  setting = 'export_checkpoint_step' if is_export else 'eval_checkpoint_step'
  steps = getattr(run, setting)
  try:
    names = _chosen(folder, steps, is_export)
    if run.mode.startswith('score_from') and (steps is None or len(names) > 1):
      raise ValueError(
        f'mode {run.mode!r} reads one checkpoint; give -1 for the latest'
      )
  except ValueError as fault:
    raise UserError(
      f'utils.run.{setting} = {steps!r}: {fault}.{folder.summary()}'
    ) from None
  return [os.path.join(run.model_dir, name) for name in names]


def _chosen(folder: Folder, steps: Any, is_export: bool) -> list[str]:
  """Returns the names of the checkpoints of these steps.

  Raises a ValueError if the setting is wrong.
  """
  # Without a step, an export reads the latest checkpoint. Other modes wait for
  # new ones, which they find through the same file `checkpoint`.
  if steps is None or steps == -1 or (is_export and not steps):
    return [os.path.basename(folder.latest() or '')]
  if steps == 'all':
    return _all_complete(folder)
  numbers = steps if isinstance(steps, (list, tuple)) else [steps]
  if not numbers or not all(type(number) is int for number in numbers):
    raise ValueError(
      "expected a step, a list of steps, 'all', or -1 for the latest"
    )
  if gin.get_bindings(utils.get_checkpoint_iterator).get('find_closest'):
    return folder.checkpoints
  names = [f'model.ckpt-{number}' for number in numbers]
  missing = [name for name in names if name not in folder.checkpoints]
  if missing:
    raise ValueError(
      f'there is no {", ".join(missing)} (to take the nearest one, give '
      '--gin_param="get_checkpoint_iterator.find_closest = True")'
    )
  return names


def _all_complete(folder: Folder) -> list[str]:
  """Returns the complete checkpoints, and makes the host skip the others."""
  iterator = gin.get_bindings(utils.get_checkpoint_iterator)
  since = iterator.get('skip_until', 0)
  names = []
  for name in folder.checkpoints:
    if name not in folder.unfinished and step_of(name) > since:
      names.append(name)
  if folder.unfinished:  # the host would fail on it
    logging.warning(
      'skipped incomplete checkpoints: %s', ', '.join(folder.unfinished)
    )
    with gin.unlock_config():
      gin.bind_parameter(
        'mesh_tensorflow.transformer.utils.run.eval_checkpoint_step',
        [step_of(name) for name in names],
      )
  if not names:
    raise ValueError(
      f'none is later than get_checkpoint_iterator.skip_until = {since}'
    )
  return names


def check_files(run: RunConfig) -> None:
  """Checks the files that a mode reads and the paths that it writes to."""
  if run.mode.startswith('export'):
    _check_export(run.export_path)
  if run.mode == 'infer' and not decodes_a_file():
    return
  lines = {}
  for setting in _READ.get(run.mode, ()):
    given = _given(setting)
    if given is not None:
      lines[setting] = _lines(setting, given)
  if run.mode in _WRITTEN:
    setting = _WRITTEN[run.mode]
    path = _given(setting)
    if path is not None:
      _check_output(setting, path)
  if _SCORED_INPUTS in lines:
    _check_pairs(lines[_SCORED_TARGETS], lines[_SCORED_INPUTS])
  if run.vocabulary is not None and run.lengths:
    _check_lengths(run, run.lengths, lines)


def _check_export(path: str | None) -> None:
  if not path:
    raise UserError(
      'utils.run.export_path is not set: give the folder to export to, '
      '--gin_param="utils.run.export_path = \'exported\'".'
    )
  atomic.check_writable(path, 'utils.run.export_path')


def decodes_a_file() -> bool:
  """Whether mode 'infer' reads a file; another function reads other inputs."""
  infer = gin.get_bindings(utils.infer_model, resolve_references=False)
  decode = infer.get('decode_fn')
  return not decode or decode.selector.endswith('decode_from_file')


def _given(setting: str) -> Any:
  """Returns the value of a setting, or None if it is optional and not set."""
  function, _, parameter = setting.rpartition('.')
  value = gin.get_bindings(function).get(parameter)
  if value is None and setting in _OPTIONAL:
    return None
  if not value or value is gin.REQUIRED:
    raise UserError(f'{setting} is not set: give the path of a text file.')
  return value


def _lines(setting: str, given: Any) -> list[str]:
  """Returns the lines of a file or list, at least one."""
  lines = _read_lines(setting, given) if isinstance(given, str) else given
  is_list = isinstance(lines, (list, tuple))
  if not is_list or not all(isinstance(line, str) for line in lines):
    raise UserError(
      f'{setting} = {given!r}: expected a path or a list of strings.'
    )
  if not any(line.strip() for line in lines):
    raise UserError(f'{setting} = {given!r} is empty; expected lines of text.')
  return list(lines)


def _read_lines(setting: str, path: str) -> list[str]:
  """Reads a file as the host does, which drops a blank last line.

  The host takes a file in a bucket that it may not read for an empty one.
  """
  with filesystem.named_by(setting), filesystem.explained(path):
    text = filesystem.read(path, filesystem.DOCUMENT_BYTES).decode()
  lines = utils.get_inputs_from_file(path)
  number = text.count('\n') + (not text.endswith('\n'))
  if number > len(lines) > 0:
    logging.warning('%s:%d: skipped the blank last line', path, number)
  return lines


def _check_pairs(targets: Sequence[str], inputs: Sequence[str]) -> None:
  """Checks that the host can join targets with inputs."""
  if len(targets) % len(inputs) and len(targets) != 1:
    raise UserError(
      f'score_from_strings: {len(targets)} targets and {len(inputs)} inputs; '
      'expected as many targets as inputs, a multiple of that, or one target '
      'for all.'
    )


def _check_lengths(
  run: RunConfig,
  lengths: Mapping[str, int],
  lines: Mapping[str, list[str]],
) -> None:
  """Checks that no line, or pair that the host joins, has too many tokens."""
  for setting, counts in _token_counts(run, lines).items():
    side = _READ[run.mode][setting]
    longest = lengths[side]
    faults = []
    for number, count in enumerate(counts, start=1):
      if count > longest:
        faults.append(f'line {number} has {count} tokens')
    if faults:
      raise UserError(
        f'{setting}: the model takes {longest} tokens, and would cut off the '
        f'rest of {len(faults)} lines ({", ".join(faults[:5])}). Shorten them, '
        f'or raise {side!r} of utils.run.sequence_length (as far as max_length '
        'goes).'
      )


def _token_counts(
  run: RunConfig, lines: Mapping[str, list[str]]
) -> dict[str, Sequence[int]]:
  """Returns the number of tokens of each line, by setting."""
  encoder = run.vocabularies[0]  # the host also encodes targets with it
  is_lm = run.model_type == 'lm'
  num_ends = 0 if is_lm else 1
  counts: dict[str, Sequence[int]] = {}
  for setting, texts in lines.items():
    tokens = [encoder.encode(text.strip()) for text in texts]
    counts[setting] = [len(line) + num_ends for line in tokens]
  if is_lm and _SCORED_INPUTS in counts:  # they share a row with their target
    inputs = counts.pop(_SCORED_INPUTS)
    targets = counts[_SCORED_TARGETS]
    targets_per_input = max(len(targets) // len(inputs), 1)
    pairs = np.add(targets, np.repeat(inputs, targets_per_input))
    counts[_SCORED_TARGETS] = pairs.tolist()
  return counts


def _check_output(setting: str, path: str) -> None:
  # T5 appends the step to the names of decoded files.
  for existing in [path, *glob.glob(f'{glob.escape(path)}-*')]:
    is_writable = os.access(existing, os.W_OK) and not os.path.isdir(existing)
    if os.path.exists(existing) and not is_writable:
      raise UserError(
        f'{setting}: {existing} is not a file that can be written'
      )
  atomic.check_writable(os.path.dirname(path) or '.', setting)
