"""The checkpoints of a folder: which are there, are complete, is the latest.

TensorFlow and the host search for checkpoints with patterns, so that names with
`[`, `*` or `?` match nothing or another folder's, and they ignore a pointer
that they cannot read. Here names are literal, and such a pointer is an error.
"""

import os
import re
from typing import Optional

import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf import atomic
from synth_mtf.errors import UserError

# What TensorFlow's reader raises; for a truncated file it is an IndexError.
UNREADABLE = (tf.errors.OpError, IndexError, RuntimeError, ValueError)


def step_of(path: str) -> int:
  """The number in a checkpoint's name."""
  return utils.get_step_from_checkpoint_path(path)


def exists(path: str) -> bool:
  """Whether a checkpoint of exactly this name exists."""
  return tf.io.gfile.exists(f'{path}.index')


def written(folder: str) -> list[str]:
  """Returns the names of a folder's checkpoints, in order of their steps."""
  return _with_suffix(folder, r'\.index')


def without_index(folder: str) -> list[str]:
  """Returns the names that have data, but no `.index` file to read it by."""
  data = _with_suffix(folder, r'\.data-\d+-of-\d+')
  return [name for name in data if not exists(os.path.join(folder, name))]


def latest(folder: str) -> Optional[str]:
  """Returns the path of the checkpoint that a run resumes from, if any.

  Raises:
    UserError: there are checkpoints, but the pointer is missing, unreadable, or
      names one that does not exist.
  """
  pointer, path = _pointer(folder), _pointed(folder)
  if path is None:
    if not written(folder):
      return None
    fault = (
      f'{folder} holds {written(folder)[-1]}, but the file {pointer} that '
      'points at it is missing: training would start again at step 0 and '
      'overwrite it, and readers of the latest checkpoint would find none.'
    )
  elif _real(os.path.dirname(path)) != _real(folder):
    fault = (
      f'{pointer} points at {path}, outside the folder (was it copied from '
      'there?).'
    )
  elif not exists(path):
    fault = (
      f'{pointer} points at {path}, which is not there or has no .index file.'
    )
  else:
    return path
  raise UserError(fault + _how_to_repair_pointer(folder))


def holding(folder: str) -> str:
  """A sentence that ends a message: what a folder holds, if anything."""
  found = written(folder)
  return f' {folder} holds {", ".join(found)}.' if found else ''


def is_complete(path: str) -> bool:
  """Whether every value can be read; TensorFlow verifies their checksums."""
  try:
    reader = tf.train.load_checkpoint(path)
    for name in reader.get_variable_to_shape_map():
      reader.get_tensor(name)
  except UNREADABLE:
    return False
  return True


def damage(folder: str) -> Optional[str]:
  """Says which of a folder's checkpoints are damaged, and how to go on."""
  names = written(folder)
  complete = [n for n in names if is_complete(os.path.join(folder, n))]
  damaged = [n for n in names if n not in complete]
  if not damaged:
    return None
  message = f'damaged in {folder}: {", ".join(damaged)} (truncated or altered).'
  if not complete:
    return f'{message} No checkpoint there is complete.'
  return (
    f'{message} Complete: {", ".join(complete)}. To resume from the last of '
    f'these, write the line `{pointer_line(complete[-1])}` into '
    f'{_pointer(folder)}.'
  )


def pointer_line(name: str) -> str:
  """The line of the file `checkpoint`; relative, since folders move."""
  return f'model_checkpoint_path: "{name}"'


def point_at(folder: str, name: str) -> None:
  """Makes a checkpoint the folder's latest."""
  atomic.write(_pointer(folder), pointer_line(name) + '\n')


def repair_pointer(folder: str) -> None:
  """Makes a run that was killed resume from its last checkpoint.

  The host writes a checkpoint's data, then its `.index`, then its name into the
  file `checkpoint`. If it was killed before it first wrote that file, it would
  start again at step 0 and overwrite the checkpoint.
  """
  found = written(folder)
  try:
    is_lost = _pointed(folder) is None
  except UserError:
    is_lost = True
  if found and is_lost:
    point_at(folder, found[-1])


def _pointer(folder: str) -> str:
  return os.path.join(folder, 'checkpoint')


def _pointed(folder: str) -> Optional[str]:
  """The path in the file `checkpoint`; None if there is no such file."""
  if not tf.io.gfile.exists(_pointer(folder)):
    return None
  try:
    state = tf.train.get_checkpoint_state(folder)
  except ValueError:
    state = None
  if state is None:
    raise UserError(
      f'{_pointer(folder)} does not say which checkpoint is the latest (it is '
      f'empty or damaged).{_how_to_repair_pointer(folder)}'
    )
  return state.model_checkpoint_path


def _how_to_repair_pointer(folder: str) -> str:
  found = written(folder)
  if not found:
    return ' There is no checkpoint: choose another folder.'
  return (
    f'{holding(folder)} To resume from the last of these, write the line '
    f'`{pointer_line(found[-1])}` into that file, or choose another folder.'
  )


def _with_suffix(folder: str, suffix: str) -> list[str]:
  if not tf.io.gfile.isdir(folder):
    return []
  pattern = re.compile(rf'(model\.ckpt-\d+){suffix}')
  matches = map(pattern.fullmatch, tf.io.gfile.listdir(folder))
  return sorted({match[1] for match in matches if match}, key=step_of)


def _real(folder: str) -> str:
  return folder.rstrip('/') if '://' in folder else os.path.realpath(folder)
