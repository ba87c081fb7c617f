"""What there is: the files and rows of each split, and the rates of a mixture.

Nothing here downloads: a task over TensorFlow Datasets has no files to look at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import seqio

from synth_mtf.errors import UserError
from synth_mtf.tasks import released
from synth_mtf.tasks.files.source import FilesDataSource, TwoSources
from synth_mtf.tasks.registering import PREFIX


@dataclasses.dataclass(frozen=True)
class FileRows:
  """What one file of a split has.

  Attributes:
    path: the file or, of formats that are folders of files, the folder.
    rows: how many examples it gives; None: too long to be read for that.
    faults: the malformed rows, a line of text each, and how many more.
    num_faults: how many there are.
    notes: what is merely odd.
    digest: of its content.
  """

  path: str
  rows: int | None
  faults: tuple[str, ...] = ()
  num_faults: int = 0
  notes: tuple[str, ...] = ()
  digest: str = ''


@dataclasses.dataclass(frozen=True)
class SplitRows:
  """What a split of a task has.

  Attributes:
    task: its name.
    split: its name.
    files: what its files have.
    missing: why there are none; '' if there are.
  """

  task: str
  split: str
  files: tuple[FileRows, ...] = ()
  missing: str = ''

  @property
  def rows(self) -> int | None:
    """How many examples all files give together, None if that is unknown."""
    counts = [file.rows for file in self.files if file.rows is not None]
    return sum(counts) if counts and len(counts) == len(self.files) else None

  @property
  def released(self) -> str:
    """What that is beside the released files."""
    if self.rows is None:
      return ''
    return released.compared(self.task, self.split, self.rows)


def task_names() -> list[str]:
  """Returns the names of our tasks."""
  names = seqio.TaskRegistry.names()
  return sorted(name for name in names if name.startswith(PREFIX))


def mixture_names() -> list[str]:
  """Returns the names of our mixtures."""
  names = seqio.MixtureRegistry.names()
  return sorted(name for name in names if name.startswith(PREFIX))


def files_of(task: seqio.Task) -> FilesDataSource | None:
  """Returns the official files of a task, None where it reads TFDS."""
  if not isinstance(task.source, TwoSources):
    return None
  try:
    chosen = task.source.chosen
  except UserError:
    return None  # neither a folder nor TFDS
  return chosen if isinstance(chosen, FilesDataSource) else None


def splits_of(task: seqio.Task) -> Iterator[SplitRows]:
  """Yields what each split of a task has, reading its files; none over TFDS."""
  source = files_of(task)
  if source is None:
    return
  try:
    splits = source.splits
  except UserError as error:
    yield _faulty(task.name, '', str(error))
    return
  for split in splits:
    yield _split(source, split)


def _split(source: FilesDataSource, split: str) -> SplitRows:
  name = source.task_name
  path = ''
  try:
    found = source.found(split)
    if not found:
      return SplitRows(name, split, missing=source.missing(split))
    path = next(iter(found))
    if source.num_input_examples(split) is None:
      files = _long_files(source, split)
    else:
      files = tuple(
        FileRows(
          index.path,
          index.num_examples,
          tuple(index.faults),
          index.num_faults,
          tuple(index.notes),
          index.digest,
        )
        for index in source.indexes(split)
      )
  except UserError as error:
    return _faulty(name, split, str(error), path)
  return SplitRows(name, split, files)


def _long_files(source: FilesDataSource, split: str) -> tuple[FileRows, ...]:
  faults = tuple(source.faults(split))
  first, *others = source.files(split)
  return (
    FileRows(first, None, faults, len(faults)),
    *(FileRows(path, None) for path in others),
  )


def _faulty(task: str, split: str, error: str, path: str = '') -> SplitRows:
  return SplitRows(task, split, (FileRows(path, 0, (error,), 1),))


@dataclasses.dataclass(frozen=True)
class Rate:
  """How often a mixture draws from a task.

  Attributes:
    task: its name.
    rows: its training rows; None if unknown.
    known: where that figure is from: 'files' or 'released'.
    rate: the rate; None if unknown.
  """

  task: str
  rows: int | None
  known: str
  rate: float | None


def rates_of(mixture: seqio.Mixture) -> list[Rate]:
  """Returns the rate of each task of a mixture that has training rows.

  The rows are counted in the files where there are some; else they are those of
  the released files. The functions that make rates of them are the mixture's.
  """
  rates = []
  for task in sorted(mixture.tasks, key=lambda task: task.name):
    source = files_of(task)
    if 'train' not in (source.splits if source else task.source.split_files):
      continue
    if source and source.found('train'):
      rows, known = source.num_input_examples('train'), 'files'
    else:
      rows, known = released.rows(task.name, 'train'), 'released'
    rates.append(Rate(task.name, rows, known, _rate(mixture, task, rows)))
  return rates


def _rate(
  mixture: seqio.Mixture, task: seqio.Task, rows: int | None
) -> float | None:
  counted = task.replace(
    source=seqio.FunctionDataSource(
      lambda split, shuffle_files: None,
      splits=['train'],
      num_input_examples={'train': rows},
    )
  )
  try:
    return mixture.get_rate(counted)
  except TypeError:  # of a rate that needs the number of rows
    return None
