"""The checkpoints in a folder: which exist, are complete, and is the latest.

TensorFlow and the host find checkpoints with glob patterns, so folder names
with `[`, `*` or `?` match nothing or another folder. They also ignore an
unreadable pointer. Here, names are literal and such a pointer is an error.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format

from synth_mtf.checkpoints import index_file, messages, values
from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem

_SHARD = re.compile(r'\.data-\d+-of-(\d+)$')
_NAME = re.compile(r'model\.ckpt-\d+')
_FILE = re.compile(
  rf'({_NAME.pattern})'
  r'(_temp|\.(index|meta|data-\d+-of-\d+)(\.tempstate\d+)?)'
)
# Lines in the file `checkpoint`; their paths are relative, since folders move.
_LINE = 'model_checkpoint_path: "%s"'
_MOST_LISTED = 10  # of the names in a message
_KEPT_LINE = 'all_model_checkpoint_paths: "%s"'


def exists(path: str) -> bool:
  """Whether a checkpoint of exactly this name exists."""
  return filesystem.exists(f'{path}.index')


def is_complete(path: str) -> bool:
  """Whether every value can be read and has its checksum."""
  try:
    reader = values.Reader(path)
    for name in reader.entries:
      reader.read(name)
  except index_file.Broken:
    return False
  return True


def step_of(path: str) -> int:
  """Returns the step in the name of a checkpoint."""
  (step,) = re.findall(r'model\.ckpt-(\d+)', os.path.basename(path))[:1]
  return int(step)


def split(path: str) -> tuple[str, int | None]:
  """Returns the folder and the step of a path such as `m/model.ckpt-40`.

  Of any other path, the step is None.
  """
  parent, name = os.path.split(path)
  if not _NAME.fullmatch(name) or os.path.isdir(path):
    return path, None
  return parent or '.', step_of(name)


def listed(names: Sequence[str]) -> str:
  """Joins names; of many, the last ones."""
  earlier = len(names) - _MOST_LISTED
  if earlier <= 0:
    return ', '.join(names)
  return f'{earlier:,} more and {", ".join(names[earlier:])}'


class Folder:
  """The checkpoints in a folder, which is listed by the constructor.

  A training run adds and removes checkpoints, so an object does not outlive the
  checks before it. To see what the folder holds later, make a new one.

  Attributes:
    path: the folder, which may not exist.
    checkpoints: the names of its checkpoints, ordered by step.
    unfinished: the names of checkpoints that lack their `.index` or data.
  """

  def __init__(self, path: str) -> None:
    filesystem.check_entries(path)
    self.path = path
    self._pointer = os.path.join(path, 'checkpoint')
    self._list()

  def _list(self) -> None:
    self._files = _files_in(self.path)
    self.checkpoints: list[str] = []
    self.unfinished: list[str] = []
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
        'is not named model.ckpt-<step>, or is outside the folder (was it '
        'copied?).'
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
    advice = self.how_to_resume(self.checkpoints)
    raise UserError(f'{fault}{self.summary()} {advice}')

  def summary(self) -> str:
    """Returns a sentence that lists the checkpoints, or '' without any."""
    if not self.checkpoints:
      return ''
    return f' {self.path} holds {listed(self.checkpoints)}.'

  def damage(self) -> str | None:
    """Returns which checkpoints are damaged, and how to resume; None if none.

    Reads them all.
    """
    damaged = self.damaged(self.checkpoints)
    if not damaged:
      return None
    complete = [name for name in self.checkpoints if name not in damaged]
    return (
      f'damaged in {self.path}: {listed(damaged)} (truncated or altered). '
      f'Complete: {listed(complete) or "none"}. ' + self.how_to_resume(complete)
    )

  def damaged(self, names: Sequence[str]) -> list[str]:
    """Returns those of some checkpoints of which a value cannot be read.

    A run may have removed others since the folder was listed.
    """
    paths = {name: os.path.join(self.path, name) for name in names}
    return [
      name
      for name, path in paths.items()
      if not is_complete(path) and exists(path)
    ]

  def how_to_resume(self, names: Sequence[str]) -> str:
    """Returns what to do to resume from the last of some checkpoints."""
    if not names:
      return 'Choose another folder.'
    line = _LINE % names[-1]
    return (
      f'To resume from {names[-1]}, write the line `{line}` into '
      f'{self._pointer}.'
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
      filesystem.remove(os.path.join(self.path, file))
    if removed:
      self._list()
    return removed

  def remove(self, name: str) -> int:
    """Removes a checkpoint, and returns how many bytes its files had."""
    files = [os.path.join(self.path, file) for file in self._files[name]]
    present = filter(filesystem.exists, files)  # without links to nothing
    size = sum(map(filesystem.size, present))
    # Without an index, what is left after a kill counts as unfinished.
    for file in sorted(files, key=lambda file: not file.endswith('.index')):
      filesystem.remove(file)
    return size

  def point_at(self, name: str) -> None:
    """Makes a checkpoint the latest."""
    atomic.write(self._pointer, _LINE % name + '\n')

  def forget_others(self) -> list[str]:
    """Removes what is not of this folder from the list of its checkpoints.

    A run that resumes takes over the list in the file `checkpoint`. Once it has
    saved `keep_checkpoint_max` others, it removes the files that the list
    names, wherever they are, and takes the names for patterns.

    Returns:
      The paths that were removed from the list.
    """
    state = self._state()
    listed = list(state.all_model_checkpoint_paths) if state else []
    own = [path for path in listed if self._contains(path)]
    names = [os.path.basename(path) for path in own]
    if listed != [os.path.join(self.path, name) for name in names]:
      latest = os.path.basename(state.model_checkpoint_path)
      lines = [_LINE % latest, *(_KEPT_LINE % name for name in names)]
      atomic.write(self._pointer, '\n'.join(lines) + '\n')
    return [path for path in listed if path not in own]

  def _pointed_at(self) -> str | None:
    """Returns the path in the file `checkpoint`, if it can be read."""
    state = self._state()
    return state.model_checkpoint_path if state else None

  def _state(self) -> Any:
    """Returns the file `checkpoint`, with absolute paths, if it can be read."""
    try:
      text = filesystem.text(self._pointer) or ''
      state = text_format.Parse(text, messages.CheckpointState())
    except (OSError, UnicodeDecodeError, text_format.ParseError):
      return None
    if not state.model_checkpoint_path:
      return None
    # A path that is not absolute begins at the folder.
    latest = os.path.join(self.path, state.model_checkpoint_path)
    kept = state.all_model_checkpoint_paths
    absolute = [os.path.join(self.path, path) for path in kept]
    return messages.CheckpointState(
      model_checkpoint_path=latest, all_model_checkpoint_paths=absolute
    )

  def _contains(self, path: str) -> bool:
    """Whether a path is that of a checkpoint of this folder, if it exists."""
    parent, name = os.path.split(path)
    is_here = os.path.realpath(parent) == os.path.realpath(self.path)
    return is_here and _NAME.fullmatch(name) is not None


def _files_in(folder: str) -> dict[str, list[str]]:
  """Returns the files of each checkpoint, complete or not, ordered by step."""
  files: dict[str, list[str]] = {}
  for entry in filesystem.names(folder):
    match = _FILE.fullmatch(entry)
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
