"""Finds the checkpoints in a folder, and reads the records beside them.

TensorFlow and the host find checkpoints with glob patterns, so folder names
with `[`, `*` or `?` match nothing or another folder. They also ignore an
unreadable pointer. Here, names are literal and such a pointer is an error.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf import atomic, paths
from synth_mtf.errors import UserError
from synth_mtf.host.run_config import RunConfig

# Raised by TensorFlow's reader; a truncated file raises an IndexError.
UNREADABLE = (tf.errors.OpError, IndexError, RuntimeError)
_SHARD = re.compile(r'\.data-\d+-of-(\d+)$')
_FILE = re.compile(
  r'(model\.ckpt-\d+)(_temp|\.(index|meta|data-\d+-of-\d+)(\.tempstate\d+)?)'
)
# The line in the file `checkpoint`; its path is relative, since folders move.
_LINE = 'model_checkpoint_path: "%s"'


step_of = utils.get_step_from_checkpoint_path  # the step in a checkpoint's name


def exists(path: str) -> bool:
  """Whether a checkpoint of exactly this name exists."""
  return tf.io.gfile.exists(f'{path}.index')


def written(folder: str) -> list[str]:
  """Returns the names of a folder's checkpoints, ordered by step."""
  return [name for name, files in _files(folder) if f'{name}.index' in files]


def unfinished(folder: str) -> list[str]:
  """Returns the names of checkpoints that lack their `.index` or data."""
  found = []
  for name, files in _files(folder):
    shards = [int(m[1]) for m in map(_SHARD.search, files) if m]
    if f'{name}.index' not in files or len(shards) < max(shards, default=1):
      found.append(name)
  return found


def clear(folder: str) -> list[str]:
  """Removes what interrupted saves left.

  Call it only while nothing else saves there. Keeps a checkpoint that has its
  index and some data, since the missing files may still be copied.
  """
  # Refuses a folder that lost part of what it resumes from.
  last = os.path.basename(latest(folder) or '')
  left = [
    file
    for name, files in _files(folder)
    for file in files
    if f'{name}.index' not in files
    or 'temp' in file
    or not (name == last or any('.data-' in one for one in files))
  ]
  for file in left:
    path = os.path.join(folder, file)
    (shutil.rmtree if os.path.isdir(path) else os.remove)(path)
  return left


def _files(folder: str) -> list[tuple[str, list[str]]]:
  """Returns checkpoints, complete or not, and their files, by step."""
  paths.check_entries(folder)
  found: dict[str, list[str]] = {}
  for file in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
    if match := _FILE.fullmatch(file.rstrip('/')):
      found.setdefault(match[1], []).append(match[0])
  return sorted(found.items(), key=lambda item: step_of(item[0]))


def latest(folder: str) -> str | None:
  """Returns the path of the checkpoint that a run resumes from, if any.

  Raises a UserError if the pointer is lost or names no checkpoint in `folder`.
  """
  found, pointer = written(folder), _pointer(folder)
  try:
    state = tf.train.get_checkpoint_state(folder)
  except ValueError:  # not UTF-8
    state = None
  path = state.model_checkpoint_path if state else None
  if path is None and not found:
    return None
  here = os.path.realpath(folder)
  if path and exists(path) and os.path.realpath(os.path.dirname(path)) == here:
    return path
  fault = (
    f'{pointer} points at {path}, which is not there, has no .index, or is '
    'outside the folder (was it copied?).'
    if path
    else f'{folder} holds {found[-1]}, but the file {pointer} that points to '
    'it is missing or damaged: training would start again at step 0 and '
    'overwrite it, and readers of the latest checkpoint would find none.'
  )
  raise UserError(f'{fault}{holding(folder)} {_how_to_resume(folder, found)}')


def holding(folder: str) -> str:
  """Returns a sentence that lists a folder's checkpoints, or '' without any."""
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


def damage(folder: str) -> str | None:
  """Says which of a folder's checkpoints are damaged, and how to resume."""
  names = written(folder)
  complete = [n for n in names if is_complete(os.path.join(folder, n))]
  damaged = [n for n in names if n not in complete]
  if not damaged:
    return None
  return (
    f'damaged in {folder}: {", ".join(damaged)} (truncated or altered). '
    f'Complete: {", ".join(complete) or "none"}. '
    + _how_to_resume(folder, complete)
  )


def explain(error: BaseException, model_dir: str) -> str | None:
  """Explains a run's error if a checkpoint that it reads is damaged."""
  if not tf.io.gfile.isdir(model_dir):
    return f'{model_dir} was removed or renamed while the run wrote to it.'
  if not isinstance(error, UNREADABLE):
    return None
  start = RunConfig().init_checkpoint
  if start and not is_complete(start):
    return (
      f'utils.run.init_checkpoint = {start} is damaged (truncated or altered): '
      'use another checkpoint, or an intact copy.'
    )
  return damage(model_dir)


def point_at(folder: str, name: str) -> None:
  """Makes a checkpoint the folder's latest."""
  atomic.write(_pointer(folder), _LINE % name + '\n')


def read_record(model_dir: str, file: str, read: Callable[[Any], Any]) -> Any:
  """Returns `read` of JSON, None if missing; a UserError if that fails."""
  paths.check_entries(model_dir)
  path = os.path.join(model_dir, file)
  if not tf.io.gfile.exists(path):
    return None
  try:
    with tf.io.gfile.GFile(path) as stream:
      return read(json.load(stream))
  except Exception as error:  # depends on what is there instead
    raise UserError(
      f'{path} is damaged ({type(error).__name__}: {error}). Copy it again, or '
      'remove it if you are sure that you do not need what it records.'
    ) from error


def _pointer(folder: str) -> str:
  return os.path.join(folder, 'checkpoint')


def _how_to_resume(folder: str, names: Sequence[str]) -> str:
  if not names:
    return 'Choose another folder.'
  return (
    f'To resume from {names[-1]}, write the line `{_LINE % names[-1]}` into '
    f'{_pointer(folder)}.'
  )
