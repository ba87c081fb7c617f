"""JSON files that training writes beside the checkpoints, for later runs."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from synth_mtf import atomic
from synth_mtf.checkpoints import folder
from synth_mtf.errors import UserError


def write(model_dir: str, file: str, content: Any) -> None:
  """Writes a record, unless one describes the folder's checkpoints already."""
  path = os.path.join(model_dir, file)
  # Without a checkpoint, a record is left over from a run that never saved one.
  if not tf.io.gfile.exists(path) or not folder.written(model_dir):
    atomic.write(path, json.dumps(content, indent=2) + '\n')


def read(
  model_dir: str,
  file: str,
  what: str,
  parse: Callable[[Any], Mapping[str, Any]] = lambda content: content,
) -> Mapping[str, Any]:
  """Returns a record; empty where there is none.

  Args:
    model_dir: the folder of the checkpoints.
    file: the record's name.
    what: the subject of the record, for the message.
    parse: makes the record from the content of the file.

  Raises:
    UserError: the file is damaged.
  """
  path = os.path.join(model_dir, file)
  if not tf.io.gfile.exists(path):
    return {}
  try:
    with tf.io.gfile.GFile(path) as stream:
      return parse(json.load(stream))
  except (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    tf.errors.OpError,
  ) as error:
    raise UserError(
      f'{path} is damaged ({error}); remove it if you are sure that {what} is '
      'the one that the checkpoints were trained with.'
    ) from error
