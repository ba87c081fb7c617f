"""Checks the data of tasks, and reports the rows and rates they have.

Nothing here downloads: tasks over TensorFlow Datasets are not looked at.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import seqio

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings, released
from synth_mtf.tasks.files import storage
from synth_mtf.tasks.files.formats import Reader
from synth_mtf.tasks.files.index import FileIndex
from synth_mtf.tasks.files.source import FIX, FilesDataSource, TwoSources
from synth_mtf.tasks.registering import PREFIX, get

_CHUNK_BYTES = 1 << 20


def check(names: Iterable[str], splits: Sequence[str]) -> None:
  """Checks the data of tasks and mixtures before they are used.

  Every row of official files is read once; the result is kept, so that a second
  call costs nothing until a file changes. Of text above 256 MB only the first
  rows of each file are read. Tasks over TFDS are not checked.

  Args:
    names: tasks or mixtures. A task of a mixture that does not have a split is
      left out, as seqio does; at least one must have it.
    splits: such as `['train', 'validation']`.

  Raises:
    UserError: one message with all faults: an unknown name, a missing file, a
      malformed row (file and line), a split without rows.
  """
  faults = []
  for name in names:
    try:
      tasks = seqio.get_subtasks(get(name))
      for split in splits:
        faults += _faults(name, tasks, split)
    except UserError as error:
      faults.append(str(error))
  if faults:
    raise UserError('\n'.join(dict.fromkeys(faults)))


def _faults(name: str, tasks: Iterable[seqio.Task], split: str) -> list[str]:
  sources = {task.name: _source(task) for task in tasks}
  having = [source for source in sources.values() if _may_have(source, split)]
  if not having:
    known = sorted({s for source in sources.values() for s in source.splits})
    return [f'{name} has no split {split!r}; it has {", ".join(known)}.']
  return [fault for source in having for fault in _faults_of(source, split)]


def _faults_of(source: seqio.DataSource, split: str) -> list[str]:
  if not isinstance(source, FilesDataSource):
    return []
  try:
    faults = source.faults(split)
    if faults and not data_settings.settings().skip_bad_rows:
      return [*faults, FIX]
    no_rows = source.num_input_examples(split) == 0
    return [source.no_rows(split)] * no_rows
  except UserError as error:
    return [str(error)]


def _source(task: seqio.Task) -> seqio.DataSource:
  source = task.source
  return source.chosen if isinstance(source, TwoSources) else source


def _may_have(source: seqio.DataSource, split: str) -> bool:
  splits = source.splits
  # TFDS does not know the splits of a dataset that is not on the disk yet.
  unknown = not splits and not isinstance(source, FilesDataSource)
  return unknown or split in splits


def rows(name: str, split: str) -> dict[str, int | None]:
  """Counts the rows of a split, of each task that has it.

  Args:
    name: a task or a mixture.
    split: such as `'validation'`.

  Returns:
    The number by task; None where it is not known without reading the data: of
    tasks over TFDS, and of text above 256 MB.
  """
  counts: dict[str, int | None] = {}
  for task in seqio.get_subtasks(get(name)):
    source = _source(task)
    if _may_have(source, split):
      in_files = isinstance(source, FilesDataSource)
      counts[task.name] = source.num_input_examples(split) if in_files else None
  return counts


@dataclasses.dataclass(frozen=True)
class SplitRows:
  """The files of a split of a task.

  Attributes:
    task: its name.
    split: its name.
    files: what one pass over each of them found.
    readers: the format of each file; {} if they cannot be read.
    counted: whether all rows were read; otherwise only the first ones.
    missing: why there are no files; '' if there are.
  """

  task: str
  split: str
  files: Sequence[FileIndex] = ()
  readers: Mapping[str, Reader] = dataclasses.field(default_factory=dict)
  counted: bool = True
  missing: str = ''

  @property
  def rows(self) -> int | None:
    """How many examples all files give together, None if that is unknown."""
    if not self.files or not self.counted:
      return None
    return sum(file.num_examples for file in self.files)

  @property
  def released(self) -> str:
    """How that compares with the released files."""
    if self.rows is None:
      return ''
    return released.compared(self.task, self.split, self.rows)

  def digest(self, files: Iterable[FileIndex]) -> str:
    """Returns a digest of the content of some files; '' if not all was read."""
    if not self.readers or not self.counted:
      return ''
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
      for path in self.readers[file.path].files(file.path):
        with storage.reading(path) as stream:
          while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


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
  try:
    source = _source(task)
  except UserError:
    return None  # neither a folder nor TFDS
  return source if isinstance(source, FilesDataSource) else None


def splits_of(task: seqio.Task) -> Iterator[SplitRows]:
  """Yields the files of each split of a task, reading them; none over TFDS."""
  source = files_of(task)
  if source is None:
    return
  try:
    splits = source.splits
  except UserError as error:
    yield SplitRows(task.name, '', [_faulty('', error)])
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
    path, *others = found
    if source.num_input_examples(split) is not None:
      return SplitRows(name, split, source.indexes(split), found)
    faults = source.faults(split)
    first = FileIndex(path, faults=faults, num_faults=len(faults))
    files = [first, *map(FileIndex, others)]
    return SplitRows(name, split, files, found, counted=False)
  except UserError as error:
    return SplitRows(name, split, [_faulty(path, error)])


def _faulty(path: str, error: UserError) -> FileIndex:
  return FileIndex(path, faults=[str(error)], num_faults=1)


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

  Rows are counted in the files; where there are none, they are those of the
  released files. The mixture's own functions make rates of them.
  """
  rates = []
  for task in sorted(mixture.tasks, key=lambda task: task.name):
    source = files_of(task)
    if 'train' not in (source.splits if source else task.source.split_files):
      continue
    if source and source.found('train'):
      count, known = source.num_input_examples('train'), 'files'
    else:
      count, known = released.rows(task.name, 'train'), 'released'
    rates.append(Rate(task.name, count, known, _rate(mixture, task, count)))
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
