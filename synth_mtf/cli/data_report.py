"""The rows of a data folder, a line for each file, for `synth-mtf doctor`."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from synth_mtf.cli import columns

_HEADS = ('task', 'split', 'file', 'rows', 'released', 'faults', 'digest')
_WIDTHS = (38, 21, 44, -11, 20, -6, 16)
# A split of more files is one line of the table.
_MOST_FILES = 4


class DataReport:
  """What the files of all tasks have.

  Attributes:
    found: the tasks that have files.
    missing: those that lack some, and of which splits.
    faults: for each file with malformed rows, these.
    notes: what is merely odd.
  """

  def __init__(self, data_dir: str) -> None:
    self.found: list[str] = []
    self.missing: list[str] = []
    self.faults: dict[str, Sequence[str]] = {}
    self.notes: list[str] = []
    self._data_dir = data_dir

  def lines(self) -> Iterator[str]:
    """Reads all files, and yields the lines of the table as they are read."""
    from synth_mtf.tasks import get, overview

    for name in overview.task_names():
      wanted = []
      for split in overview.splits_of(get(name)):
        if split.missing:
          wanted.append(split.split)
          continue
        if not self.found:
          yield columns.line(_HEADS, _WIDTHS)
        if name not in self.found:
          self.found.append(name)
        yield from self._split(split)
      if wanted:
        self.missing.append(f'{name} ({", ".join(wanted)})')

  def _split(self, split: Any) -> Iterator[str]:
    """Yields the lines of a split."""
    files = split.files
    for file in files:
      if file.faults:
        more = file.num_faults - len(file.faults)
        self.faults[file.path] = (
          *file.faults,
          *[f'... and {more} more'] * bool(more),
        )
      self.notes += [note for note in file.notes if note not in self.notes]
    if len(files) > _MOST_FILES:
      yield self._line(
        split,
        f'{self._name(files[0].path)} and {len(files) - 1:,} more',
        split.rows,
        split.released,
        sum(file.num_faults for file in files),
        _digest(files),
      )
      return
    for file in files:
      yield self._line(
        split,
        self._name(file.path),
        file.rows,
        split.released if len(files) == 1 else '',
        file.num_faults,
        file.digest,
      )
    if len(files) > 1:
      yield self._line(split, 'together', split.rows, split.released, '', '')

  def _line(
    self,
    split: Any,
    file: str,
    rows: Any,
    released: str,
    faults: Any,
    digest: str,
  ) -> str:
    cells = (
      split.task,
      split.split,
      file,
      columns.count(rows),
      released,
      str(faults),
      digest,
    )
    return columns.line(cells, _WIDTHS)

  def _name(self, path: str) -> str:
    inside = path.startswith(os.path.join(self._data_dir, ''))
    return path[len(os.path.join(self._data_dir, '')) :] if inside else path


def _digest(files: Sequence[Any]) -> str:
  together = ' '.join(file.digest for file in files)
  return hashlib.blake2b(together.encode(), digest_size=8).hexdigest()
