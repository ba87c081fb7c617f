"""JSON files that training writes beside the checkpoints, for later runs."""

import json
import os
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from synth_mtf import atomic
from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError


def write(model_dir: str, file: str, content: Any) -> None:
  """Writes a record, unless it already speaks of checkpoints in the folder."""
  path = os.path.join(model_dir, file)
  # Without a checkpoint, what is there was left by a run that came to nothing.
  if not tf.io.gfile.exists(path) or not folder.written(model_dir):
    atomic.write(path, json.dumps(content, indent=2) + '\n')


def read(model_dir: str, file: str, what: str) -> Optional[Any]:
  """Returns a record, or None where there is none.

  Args:
    model_dir: the folder of the checkpoints.
    file: the record's name.
    what: it tells of the checkpoints, for the message.

  Raises:
    UserError: it cannot be read.
  """
  path = os.path.join(model_dir, file)
  if not tf.io.gfile.exists(path):
    return None
  try:
    with tf.io.gfile.GFile(path) as stream:
      return json.load(stream)
  except (ValueError, tf.errors.OpError) as error:
    raise damaged(path, what, error) from error


def damaged(path: str, what: str, error: Exception) -> UserError:
  """The error of a record that does not say what it should."""
  return UserError(
    f'{path} is damaged ({error}); remove it if you know that {what} is the '
    'one that the checkpoints were trained with.'
  )
