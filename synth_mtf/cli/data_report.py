"""The rows of a data folder, a line for each split of a task."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from synth_mtf.results import printing

_HEADS = ('task', 'split', 'rows', 'released', 'faults', 'digest', 'files')
_WIDTHS = (38, 21, -11, 20, -6, 16, 44)
_MOST_FILES = 4


class DataReport:
  """The official files of some tasks.

  Attributes:
    splits: the `SplitRows` that have been read, or are missing, so far.
  """

  def __init__(self, data_dir: str) -> None:
    self.splits: list[Any] = []
    self._prefix = os.path.join(data_dir, '')

  def lines(self, names: Iterable[str]) -> Iterator[str]:
    """Reads all files, and yields the lines of the table as they are read."""
    from synth_mtf.tasks import get, inspection

    for name in names:
      for split in inspection.splits_of(get(name)):
        if split.files:
          if not self.files:
            yield printing.line(_HEADS, _WIDTHS)
          yield self._line(split)
        self.splits.append(split)

  @property
  def files(self) -> list[Any]:
    """What one pass over each of the files has found so far."""
    return [file for split in self.splits for file in split.files]

  @property
  def faults(self) -> list[Sequence[str]]:
    """The malformed rows of each file that has some."""
    return list(dict.fromkeys(tuple(f.faults) for f in self.files if f.faults))

  @property
  def notes(self) -> list[str]:
    """What is odd."""
    return list(dict.fromkeys(note for f in self.files for note in f.notes))

  def _line(self, split: Any) -> str:
    paths = [file.path.removeprefix(self._prefix) for file in split.files]
    if len(paths) > _MOST_FILES:
      paths = [*paths[:_MOST_FILES], f'and {len(paths) - _MOST_FILES:,} more']
    cells = (
      split.task,
      split.split,
      printing.count(split.rows),
      split.released,
      str(sum(file.num_faults for file in split.files)),
      split.digest,
      ' '.join(paths),
    )
    return printing.line(cells, _WIDTHS)
