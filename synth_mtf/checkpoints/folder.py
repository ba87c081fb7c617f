"""A folder of checkpoints: which are there, are complete, and is the latest."""

import os

import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf import atomic

# What TensorFlow's reader raises; for a file cut short it is an IndexError.
UNREADABLE = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
POINTER = 'checkpoint'


def step_of(path: str) -> int:
  """The number in a checkpoint's name."""
  return utils.get_step_from_checkpoint_path(path)


def written(folder: str) -> list[str]:
  """Returns the names of a folder's checkpoints, in order of their steps."""
  files = tf.io.gfile.glob(os.path.join(folder, 'model.ckpt-*.index'))
  found = [os.path.basename(path)[: -len('.index')] for path in files]
  return sorted(found, key=step_of)


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


def mend_pointer(folder: str) -> None:
  """Makes a run that was killed resume from its last checkpoint.

  The host writes a checkpoint's data, then its `.index`, then its name into the
  file `checkpoint`. If it was killed before that file was first written, it
  would start again at step 0 and overwrite what is there.
  """
  found = written(folder)
  if found and tf.train.get_checkpoint_state(folder) is None:
    point_at(folder, found[-1])
