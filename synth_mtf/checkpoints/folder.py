"""A folder of checkpoints: which are there, are complete, and is the latest.

TensorFlow and the host look for checkpoints with patterns, so that a name with
`[`, `*` or `?` finds nothing or another folder's, and take a pointer that they
cannot read for none. Here names are names, and such a pointer is an error.
"""

import os
import re
from typing import Optional

import tensorflow.compat.v1 as tf
from google.protobuf import text_format  # type: ignore[import-untyped]
from mesh_tensorflow.transformer import utils
from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState

from synth_mtf import atomic
from synth_mtf.errors import UserError

# What TensorFlow's reader raises; for a file cut short it is an IndexError.
UNREADABLE = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
POINTER = 'checkpoint'


def step_of(path: str) -> int:
  """The number in a checkpoint's name."""
  return utils.get_step_from_checkpoint_path(path)


def exists(path: str) -> bool:
  """Whether there is a checkpoint of this very name."""
  return tf.io.gfile.exists(f'{path}.index')


def written(folder: str) -> list[str]:
  """Returns the names of a folder's checkpoints, in order of their steps."""
  return _with_suffix(folder, r'\.index')


def without_index(folder: str) -> list[str]:
  """Returns the names that have data, but no `.index` to read it by."""
  there = written(folder)
  data = _with_suffix(folder, r'\.data-\d+-of-\d+')
  return [name for name in data if name not in there]


def pointed(folder: str) -> Optional[str]:
  """Returns the path that the file `checkpoint` names; None without the file.

  Raises:
    UserError: the file does not say what it should.
  """
  pointer = os.path.join(folder, POINTER)
  if not tf.io.gfile.exists(pointer):
    return None
  state = CheckpointState()
  try:
    with tf.io.gfile.GFile(pointer, 'rb') as stream:
      text_format.Parse(stream.read().decode('utf-8'), state)
  except (text_format.ParseError, UnicodeDecodeError, tf.errors.OpError):
    state.Clear()
  if not state.model_checkpoint_path:
    raise UserError(
      f'{pointer} does not say which checkpoint is the latest (it is empty or '
      f'damaged).{_mend_of_pointer(folder)}'
    )
  return os.path.join(folder, state.model_checkpoint_path)


def latest(folder: str) -> Optional[str]:
  """Returns the path of the checkpoint that a run in a folder goes on from.

  Returns:
    The path without `.index`, or None where nothing has been written yet.

  Raises:
    UserError: there are checkpoints, but the pointer is missing, cannot be
      read, or names one that is not there.
  """
  path = pointed(folder)
  if path is None:
    if not written(folder):
      return None
    raise UserError(
      f'{folder} holds {written(folder)[-1]}, but the file '
      f'{os.path.join(folder, POINTER)} that points at it is missing: training '
      'would start again at step 0 and overwrite it, and whatever reads the '
      f'latest checkpoint would find none.{_mend_of_pointer(folder)}'
    )
  if _real(os.path.dirname(path)) != _real(folder):
    raise UserError(
      f'{os.path.join(folder, POINTER)} points at {path}, outside the folder '
      f'(was it copied from there?).{_mend_of_pointer(folder)}'
    )
  if not exists(path):
    raise UserError(
      f'{os.path.join(folder, POINTER)} points at {path}, which is not there '
      f'or has no .index file.{_mend_of_pointer(folder)}'
    )
  return path


def holding(folder: str) -> str:
  """What a folder holds, as a sentence to end a message with; or nothing."""
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


def damage(folder: str) -> str:
  """Says which of a folder's checkpoints is damaged, and how to go on.

  Returns:
    A message, or '' if all of them are complete.
  """
  complete: list[str] = []
  damaged: list[str] = []
  for name in written(folder):
    whole = is_complete(os.path.join(folder, name))
    (complete if whole else damaged).append(name)
  if not damaged:
    return ''
  message = f'damaged in {folder}: {", ".join(damaged)} (truncated or altered).'
  if not complete:
    return f'{message} No complete checkpoint is there.'
  return (
    f'{message} Complete: {", ".join(complete)}. To go on from there, write '
    f'the line `{pointer_line(complete[-1])}` into '
    f'{os.path.join(folder, POINTER)}.'
  )


def pointer_line(name: str) -> str:
  """What a folder's file `checkpoint` says, relative: the folder may move."""
  return f'model_checkpoint_path: "{name}"'


def point_at(folder: str, name: str) -> None:
  """Makes a checkpoint the folder's latest."""
  atomic.write(os.path.join(folder, POINTER), pointer_line(name) + '\n')


def repair_pointer(folder: str) -> None:
  """Makes a run that was killed resume from its last checkpoint.

  The host writes a checkpoint's data, then its `.index`, then its name into the
  file `checkpoint`. If it was killed before that file was first written, it
  would start again at step 0 and overwrite what is there.
  """
  found = written(folder)
  try:
    is_lost = pointed(folder) is None
  except UserError:
    is_lost = True
  if found and is_lost:
    point_at(folder, found[-1])


def _mend_of_pointer(folder: str) -> str:
  found = written(folder)
  if not found:
    return ' No checkpoint is there: choose another folder.'
  return (
    f'{holding(folder)} Write the line `{pointer_line(found[-1])}` into that '
    'file to go on from there, or choose another folder.'
  )


def _with_suffix(folder: str, suffix: str) -> list[str]:
  if not tf.io.gfile.isdir(folder):
    return []
  pattern = re.compile(rf'(model\.ckpt-\d+){suffix}')
  matches = map(pattern.fullmatch, tf.io.gfile.listdir(folder))
  return sorted({match[1] for match in matches if match}, key=step_of)


def _real(folder: str) -> str:
  if '://' in folder:
    return folder.rstrip('/')
  return os.path.realpath(folder)
