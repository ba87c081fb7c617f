"""Checks the data of tasks and counts their rows.

Nothing is downloaded: tasks that read TensorFlow Datasets are not checked.
"""

import functools
import hashlib
import itertools
import json
import math
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import seqio

from synth_mtf.errors import UserError
from synth_mtf.paths import PREFIX
from synth_mtf.storage import filesystem
from synth_mtf.tasks import cache_record
from synth_mtf.tasks.files import index
from synth_mtf.tasks.files.source import (
  FilesDataSource,
  MissingFiles,
  TwoSources,
)
from synth_mtf.tasks.task_file import get, register


def check(names: Iterable[str], splits: Sequence[str]) -> list[str]:
  """Checks the official files of tasks and mixtures before they are used.

  Every row is read once, and the result is cached until the file changes. If
  text exceeds 256 MB, only the first rows of each file are read. As in seqio,
  tasks of a mixture that lack a split are skipped; at least one must have it.
  Returns what is odd about the rows, such as those that are left out.

  Raises:
    UserError: lists all faults: an unknown name, a missing file, a malformed
      row (file and line), or a split without rows.
  """
  faults: list[str] = []
  notes: list[str] = []
  for name, split in itertools.product(names, splits):
    try:
      sources = _sources(name, split)
    except UserError as error:
      faults.append(str(error))
      continue
    for source in sources:
      if not isinstance(source, FilesDataSource):
        continue
      try:
        indexes = source.check(split)
      except UserError as error:
        faults.append(str(error))
        continue
      for file in indexes:
        notes.extend(file.notes)
  if faults:
    raise UserError('\n'.join(dict.fromkeys(faults)))
  return [*dict.fromkeys(notes)]


def rate(mixture: seqio.Mixture, task: seqio.Task) -> float:
  """Returns the rate of a task in a mixture, which may be a user's function."""
  try:
    return float(mixture.get_rate(task))
  except (
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
  ) as error:
    raise UserError(
      f'the rate of {task.name} in the mixture {mixture.name} fails: '
      f'{type(error).__name__}: {error}'
    ) from error


def check_rates(name: str, split: str) -> None:
  """Checks the rates of a mixture, as seqio does not.

  Args:
    name: of a task or a mixture.
    split: tasks without it are left out, as in seqio.
  """
  mixture = get(name)
  if not isinstance(mixture, seqio.Mixture):
    return
  tasks = [task for task in mixture.tasks if split in task.splits]
  rates = {task.name: rate(mixture, task) for task in tasks}
  for task_name, number in rates.items():
    if not 0 <= number < math.inf:
      raise UserError(
        f'the rate of {task_name} in the mixture {name} is {number}; expected '
        'a number that is not negative'
      )
  if not any(rates.values()):
    raise UserError(
      f'all rates of the mixture {name} are 0 ({", ".join(rates)}); expected '
      'one that is not'
    )


def _sources(name: str, split: str) -> list[seqio.DataSource]:
  """Returns the source of each task that may have a split, at least one."""
  tasks = seqio.get_subtasks(get(name))
  sources = [getattr(task.source, 'chosen', task.source) for task in tasks]
  having_split = [source for source in sources if _may_have(source, split)]
  if not having_split:
    known: set[str] = set().union(*[source.splits for source in sources])
    raise UserError(
      f'{name} has no split {split!r}; it has {", ".join(sorted(known))}.'
    )
  return having_split


def _may_have(source: seqio.DataSource, split: str) -> bool:
  if isinstance(source, FilesDataSource) or source.splits:
    return split in source.splits
  # TFDS does not know the splits of a dataset that is not on disk yet.
  return True


@functools.cache
def released_counts() -> dict[str, dict[str, int]]:
  """Returns row counts of the released files, by task and by split.

  A row is an example as TensorFlow Datasets counts it, before T5's
  preprocessors: an answer in MultiRC, a query in ReCoRD, a turn in a dialogue.
  Training rows of WMT are the total of all its files, those of CNN/DailyMail
  exclude the 114 stories without an article, and T5 trains on the 259 of WSC's
  554 rows whose referent is correct. The counts are from TFDS's catalogue, for
  the versions that T5 names; those of ConvAI2, which TFDS does not have, are
  from ParlAI.
  """
  return json.loads(
    pathlib.Path(__file__).with_name('released.json').read_text()
  )


def released_rows(task: str, split: str) -> int | None:
  """Returns the number of rows in the released files, or None if unknown."""
  return released_counts().get(task.removeprefix(PREFIX), {}).get(split)


class SplitRows(NamedTuple):
  """The rows of one split of a task."""

  task: str
  split: str
  files: Sequence[index.FileIndex] = ()  # official files; none for TFDS
  missing: str = ''  # the error if required files are missing
  is_own: bool = False  # whether a module has registered the task's source
  own_rows: int | None = None  # of such a source, if it says so
  named_by: str = ''  # what brought the files, for messages

  @classmethod
  def of(cls, source: FilesDataSource, split: str) -> 'SplitRows':
    """Returns the rows of a split that is read from files."""
    files = source.indexes(split)
    return cls(source.task_name, split, files, named_by=source.named_by)

  @property
  def rows(self) -> int | None:
    """Number of rows, the released number for TFDS; None if unknown."""
    if self.is_own:
      return self.own_rows
    if not self.files:
      return released_rows(self.task, self.split)
    total = 0
    for file in self.files:
      if file.num_examples is None:
        return None
      total += file.num_examples
    return total

  @property
  def released(self) -> str:
    """Comparison of the number of rows with the released files."""
    rows, expected = self.rows, released_rows(self.task, self.split)
    if rows is None or expected is None:
      return ''
    if rows < expected:
      return f'{expected - rows:,} missing'
    if rows > expected:
      return f'{rows - expected:,} more'
    return 'as released'

  @property
  def digest(self) -> str:
    """Digest of the content of all files; '' if they were not fully read."""
    if self.rows is None or self.is_own:
      return ''
    digest = hashlib.blake2b(digest_size=8)
    for file in self.files:
      for path in file.reader.files(file.path):
        with (
          filesystem.named_by(self.named_by),
          filesystem.reading(path) as stream,
        ):
          while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def digest(task: str, split: str) -> str:
  """Returns the digest of a split's official files, '' if there are none.

  A cache knows the digest of the files that it was written from.
  """
  register()
  cached = cache_record.of_task(task)
  if cached and split in cached.splits:
    return cached.splits[split].digest
  if task not in seqio.TaskRegistry.names():
    return ''
  source = getattr(seqio.TaskRegistry.get(task).source, 'official', None)
  if source is None or split not in source.splits:
    return ''
  return SplitRows.of(source, split).digest


def names(registry: Any) -> list[str]:
  """Returns the names of our entries in a seqio registry, sorted."""
  from_task_files = register()
  return sorted(
    name
    for name in registry.names()
    if name.startswith(PREFIX) or name in from_task_files
  )


def splits_of(
  task: seqio.Task, only: Sequence[str] | None = None
) -> Iterator[SplitRows]:
  """Yields all splits of a task, or those in `only`, and reads their files.

  T5's own tasks have no files; their splits are the released ones. The source
  of a task from a user's module is not read, but asked for its splits.
  """
  if not isinstance(task.source, (TwoSources, seqio.TfdsDataSource)):
    for split in task.source.splits:
      if not only or split in only:
        rows = task.source.num_input_examples(split)
        yield SplitRows(task.name, split, is_own=True, own_rows=rows)
    return
  if not isinstance(task.source, TwoSources):
    splits: Any = released_counts().get(task.name, {})
    official = None
  else:
    splits = task.source.split_files
    official = task.source.official
  for split in splits:
    if only and split not in only:
      continue
    if official is None:
      yield SplitRows(task.name, split)
      continue
    try:
      yield SplitRows.of(official, split)
    except MissingFiles as error:
      if not splits[split].optional:
        yield SplitRows(task.name, split, missing=str(error))
    except UserError as error:
      path, reader = next(iter(splits[split].layouts[0].items()))
      unread = index.FileIndex(
        reader, path, None, num_faults=1, faults=[str(error)]
      )
      yield SplitRows(task.name, split, [unread])
