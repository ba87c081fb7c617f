"""What is wrong with a checkpoint that a run could not restore."""

import os
import re

import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

# What TensorFlow's reader raises: a file cut short is an IndexError.
UNREADABLE = (tf.errors.OpError, IndexError, RuntimeError, ValueError)


# The step, and the optimizer's slots.
NOT_A_WEIGHT = re.compile(r'(^|/)global_step$|_slot_\w+$')


def names(folder: str) -> list[str]:
  """Returns the names of a folder's checkpoints, in order of their steps."""
  files = tf.io.gfile.glob(os.path.join(folder, 'model.ckpt-*.index'))
  found = [os.path.basename(path)[: -len('.index')] for path in files]
  return sorted(found, key=utils.get_step_from_checkpoint_path)


def scope(name: str) -> str:
  """The scope of a variable.

  One variable more in a scope that a model has is no sign of another model:
  early T5 checkpoints have a relative_attention_bias in EncDecAttention, which
  T5 does not use.
  """
  return name.rpartition('/')[0]


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
  complete, damaged = [], []
  for name in names(folder):
    whole = is_complete(os.path.join(folder, name))
    (complete if whole else damaged).append(name)
  if not damaged:
    return ''
  message = f'damaged in {folder}: {", ".join(damaged)} (truncated or altered).'
  if not complete:
    return f'{message} No complete checkpoint is there.'
  return (
    f'{message} Complete: {", ".join(complete)}. To go on from there, write '
    f'the line `model_checkpoint_path: "{complete[-1]}"` into '
    f'{os.path.join(folder, "checkpoint")}.'
  )


def differences(graph: tf.Graph, path: str) -> str:
  """Says how the variables of a graph and of a checkpoint differ.

  Args:
    graph: the graph that was to be restored.
    path: the checkpoint.

  Returns:
    A message, or '' if the checkpoint fits.
  """
  reader = tf.train.load_checkpoint(path)
  types = reader.get_variable_to_dtype_map()
  saved = {
    name: f'{types[name].name}{list(shape)}'
    for name, shape in reader.get_variable_to_shape_map().items()
  }
  wanted = {
    v.op.name: f'{v.dtype.base_dtype.name}{v.shape.as_list()}'
    for v in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
  }
  other = [
    f'{name} is {saved[name]} in the checkpoint, {kind} in the model'
    for name, kind in wanted.items()
    if name in saved and saved[name] != kind
  ]
  missing = [f'{name} is not in it' for name in wanted if name not in saved]
  # The host leaves these out without a word: the layers of a larger model, R.
  scopes = {scope(name) for name in wanted}
  unused = [
    f'{name} is not in the model'
    for name in saved
    if scope(name) not in scopes and not NOT_A_WEIGHT.search(name)
  ]
  found = sorted(other) + sorted(missing) + sorted(unused)
  if not found:
    return ''
  shown = '; '.join(found[:3])
  more = f'; and {len(found) - 3} more' if len(found) > 3 else ''
  return (
    f'the checkpoint {path} was made by another model: {shown}{more}. Use the '
    'variant, size, lengths, vocabulary and master_dtype it was trained with '
    f'({os.path.join(os.path.dirname(path), "operative_config.gin")}), or '
    'another --model_dir.'
  )
