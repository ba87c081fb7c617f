"""The rows of a data folder, a line for each file, for `synth-mtf doctor`."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from synth_mtf.results import printing

_HEADS = ('task', 'split', 'file', 'rows', 'released', 'faults', 'digest')
_WIDTHS = (38, 21, 44, -11, 20, -6, 16)
# A split of more files is one line of the table.
_MOST_FILES = 4


class DataReport:
  """The files of all tasks.

  Attributes:
    found: the tasks that have files.
    missing: those that lack some, and for which splits.
    faults: the malformed rows of each file that has some.
    notes: what is odd.
  """

  def __init__(self, data_dir: str) -> None:
    self.found: list[str] = []
    self.missing: list[str] = []
    self.faults: dict[str, str] = {}
    self.notes: list[str] = []
    self._prefix = os.path.join(data_dir, '')

  def lines(self) -> Iterator[str]:
    """Reads all files, and yields the lines of the table as they are read."""
    from synth_mtf.tasks import get, inspection

    for name in inspection.task_names():
      missing = []
      for split in inspection.splits_of(get(name)):
        if split.missing:
          missing.append(split.split)
          continue
        if not self.found:
          yield printing.line(_HEADS, _WIDTHS)
        if name not in self.found:
          self.found.append(name)
        yield from self._split(split)
      if missing:
        self.missing.append(f'{name} ({", ".join(missing)})')

  def _split(self, split: Any) -> Iterator[str]:
    for file in split.files:
      if file.num_faults:
        self.faults[file.path] = file.describe_faults()
      self.notes += [note for note in file.notes if note not in self.notes]
    first = split.files[0].path.removeprefix(self._prefix)
    if len(split.files) > _MOST_FILES:
      name = f'{first} and {len(split.files) - 1:,} more'
      yield self._line(split, name, split.files)
      return
    for file in split.files:
      name = file.path.removeprefix(self._prefix)
      yield self._line(split, name, [file])
    if len(split.files) > 1:
      cells = split.task, split.split, 'together', printing.count(split.rows)
      yield printing.line((*cells, split.released, '', ''), _WIDTHS)

  def _line(self, split: Any, name: str, files: Sequence[Any]) -> str:
    count = sum(file.num_examples for file in files)
    cells = (
      split.task,
      split.split,
      name,
      printing.count(count if split.counted else None),
      split.released if len(files) == len(split.files) else '',
      str(sum(file.num_faults for file in files)),
      split.digest(files),
    )
    return printing.line(cells, _WIDTHS)
