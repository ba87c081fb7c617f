"""The checkpoints in a folder: which exist, are complete, and is the latest.

TensorFlow and the host find checkpoints with glob patterns, so folder names
with `[`, `*` or `?` match nothing or another folder. They also ignore an
unreadable pointer. Here, names are literal and such a pointer is an error.
"""

import os
import re
import shutil
from collections.abc import Sequence

import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import utils

from synth_mtf import atomic, paths
from synth_mtf.checkpoints import index_file
from synth_mtf.errors import UserError

# Raised by TensorFlow's reader; a truncated file raises an IndexError.
UNREADABLE = (tf.errors.OpError, IndexError, RuntimeError)
_SHARD = re.compile(r'\.data-\d+-of-(\d+)$')
_FILE = re.compile(
  r'(model\.ckpt-\d+)(_temp|\.(index|meta|data-\d+-of-\d+)(\.tempstate\d+)?)'
)
# The line in the file `checkpoint`; its path is relative, since folders move.
_LINE = 'model_checkpoint_path: "%s"'
# Returns the step in the name of a checkpoint.
step_of = utils.get_step_from_checkpoint_path


def exists(path: str) -> bool:
  """Whether a checkpoint of exactly this name exists."""
  return tf.io.gfile.exists(f'{path}.index')


def is_complete(path: str) -> bool:
  """Whether every value can be read; TensorFlow verifies their checksums."""
  try:
    index_file.check(path)
    reader = tf.train.load_checkpoint(path)
    for name in reader.get_variable_to_shape_map():
      reader.get_tensor(name)
  except (index_file.Broken, *UNREADABLE):
    return False
  return True


class Folder:
  """The checkpoints in a folder, which is listed once, by the constructor.

  A training run adds and removes checkpoints, so an object does not outlive one
  check. To see what the folder holds later, make a new one.

  Attributes:
    path: the folder, which may not exist.
    checkpoints: the names of its checkpoints, ordered by step.
    unfinished: the names of checkpoints that lack their `.index` or data.
  """

  def __init__(self, path: str) -> None:
    paths.check_entries(path)
    self.path = path
    self._pointer = os.path.join(path, 'checkpoint')
    self._files = _list(path)
    self.checkpoints = []
    self.unfinished = []
    for name, files in self._files.items():
      has_index = f'{name}.index' in files
      if has_index:
        self.checkpoints.append(name)
      if not has_index or _lacks_data(files):
        self.unfinished.append(name)

  def latest(self) -> str | None:
    """Returns the path of the checkpoint that a run resumes from, if any.

    Raises a UserError if the pointer is lost, or names no checkpoint of the
    folder.
    """
    path = self._pointed_at()
    if path and exists(path) and self._contains(path):
      return path
    if path:
      fault = (
        f'{self._pointer} points at {path}, which is not there, has no .index, '
        'or is outside the folder (was it copied?).'
      )
    elif self.checkpoints:
      fault = (
        f'{self.path} holds {self.checkpoints[-1]}, but the file '
        f'{self._pointer} that points to it is missing or damaged: training '
        'would start again at step 0 and overwrite it, and readers of the '
        'latest checkpoint would find none.'
      )
    else:
      return None
    advice = self._how_to_resume(self.checkpoints)
    raise UserError(f'{fault}{self.summary()} {advice}')

  def summary(self) -> str:
    """Returns a sentence that lists the checkpoints, or '' without any."""
    if not self.checkpoints:
      return ''
    return f' {self.path} holds {", ".join(self.checkpoints)}.'

  def damage(self) -> str | None:
    """Returns which checkpoints are damaged, and how to resume; None if none.

    Reads them all.
    """
    complete, damaged = [], []
    for name in self.checkpoints:
      if is_complete(os.path.join(self.path, name)):
        complete.append(name)
      else:
        damaged.append(name)
    if not damaged:
      return None
    return (
      f'damaged in {self.path}: {", ".join(damaged)} (truncated or altered). '
      f'Complete: {", ".join(complete) or "none"}. '
      + self._how_to_resume(complete)
    )

  def clear(self) -> list[str]:
    """Removes what interrupted saves left, and returns the files' names.

    Call it only while nothing else saves there. Keeps a checkpoint that has its
    index and some data, since the missing files may still be copied.
    """
    # Raises an error if the folder lost part of what a run resumes from.
    last = os.path.basename(self.latest() or '')
    removed = []
    for name, files in self._files.items():
      has_data = any('.data-' in file for file in files)
      is_kept = f'{name}.index' in files and (has_data or name == last)
      for file in files:
        if not is_kept or 'temp' in file:
          removed.append(file)
    for file in removed:
      path = os.path.join(self.path, file)
      if os.path.isdir(path):
        shutil.rmtree(path)
      else:
        os.remove(path)
    return removed

  def point_at(self, name: str) -> None:
    """Makes a checkpoint the latest."""
    atomic.write(self._pointer, _LINE % name + '\n')

  def _pointed_at(self) -> str | None:
    """Returns the path in the file `checkpoint`, if it can be read."""
    try:
      state = tf.train.get_checkpoint_state(self.path)
    except ValueError:  # not UTF-8
      return None
    return state.model_checkpoint_path if state else None

  def _contains(self, path: str) -> bool:
    parent = os.path.realpath(os.path.dirname(path))
    return parent == os.path.realpath(self.path)

  def _how_to_resume(self, names: Sequence[str]) -> str:
    if not names:
      return 'Choose another folder.'
    line = _LINE % names[-1]
    return (
      f'To resume from {names[-1]}, write the line `{line}` into '
      f'{self._pointer}.'
    )


def _list(folder: str) -> dict[str, list[str]]:
  """Returns the files of each checkpoint, complete or not, ordered by step."""
  if not tf.io.gfile.isdir(folder):
    return {}
  files: dict[str, list[str]] = {}
  for entry in tf.io.gfile.listdir(folder):
    match = _FILE.fullmatch(entry.rstrip('/'))
    if match:
      files.setdefault(match[1], []).append(match[0])
  return {name: files[name] for name in sorted(files, key=step_of)}


def _lacks_data(files: Sequence[str]) -> bool:
  """Whether some of a checkpoint's data files are missing, or all of them."""
  counts = []  # the number of data files, according to each one's name
  for file in files:
    shard = _SHARD.search(file)
    if shard:
      counts.append(int(shard[1]))
  return len(counts) < max(counts, default=1)
