"""Checks the data of tasks and counts their rows.

Nothing is downloaded: tasks that read TensorFlow Datasets are not checked.
"""

import functools
import hashlib
import itertools
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import seqio

from synth_mtf.errors import UserError
from synth_mtf.tasks.files import index, storage
from synth_mtf.tasks.files.source import FilesDataSource, MissingFiles
from synth_mtf.tasks.registering import PREFIX
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
      try:
        if isinstance(source, FilesDataSource):
          notes += (n for file in source.check(split) for n in file.notes)
      except UserError as error:
        faults.append(str(error))
  if faults:
    raise UserError('\n'.join(dict.fromkeys(faults)))
  return [*dict.fromkeys(notes)]


def _sources(name: str, split: str) -> list[seqio.DataSource]:
  """Returns the source of each task that may have a split, at least one."""
  tasks = seqio.get_subtasks(get(name))
  sources = [getattr(task.source, 'chosen', task.source) for task in tasks]
  having = [
    source
    for source in sources
    if split in source.splits
    # TFDS does not know the splits of a dataset that is not on disk yet.
    or not (source.splits or isinstance(source, FilesDataSource))
  ]
  if not having:
    known = {known for source in sources for known in source.splits}
    has = ', '.join(sorted(known))
    raise UserError(f'{name} has no split {split!r}; it has {has}.')
  return having


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

  @property
  def rows(self) -> int | None:
    """Number of rows, the released number for TFDS; None if unknown."""
    if not self.files:
      return released_rows(self.task, self.split)
    counts = [file.num_examples for file in self.files]
    return None if None in counts else sum(filter(None, counts))

  @property
  def released(self) -> str:
    """Comparison of the number of rows with the released files."""
    rows, expected = self.rows, released_rows(self.task, self.split)
    if rows is None or expected is None:
      return ''
    more = rows - expected
    if more == 0:
      return 'as released'
    return f'{abs(more):,} {"missing" if more < 0 else "more"}'

  @property
  def digest(self) -> str:
    """Digest of the content of all files; '' if they were not fully read."""
    if self.rows is None:
      return ''
    digest = hashlib.blake2b(digest_size=8)
    for file in self.files:
      for path in file.reader.files(file.path):
        with storage.reading(path) as stream:
          while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def digest(task: str, split: str) -> str:
  """Returns the digest of a split's official files, '' if there are none."""
  register()
  known = task in seqio.TaskRegistry.names()
  source = seqio.TaskRegistry.get(task).source if known else None
  source = getattr(source, 'official', None)
  if source is None or split not in source.splits:
    return ''
  return SplitRows(task, split, source.indexes(split)).digest


def names(registry: Any) -> list[str]:
  """Returns the names of our entries in a seqio registry, sorted."""
  own = register()
  return sorted(n for n in registry.names() if n.startswith(PREFIX) or n in own)


def splits_of(
  task: seqio.Task, only: Sequence[str] | None = None
) -> Iterator[SplitRows]:
  """Yields all splits of a task, or those in `only`, and reads their files.

  T5's own tasks have no files, and the splits that are released.
  """
  source = getattr(task.source, 'official', None)
  known: Any = released_counts().get(task.name, {})
  for split, files in getattr(task.source, 'split_files', known).items():
    if only and split not in only:
      continue
    try:
      yield SplitRows(task.name, split, source.indexes(split) if source else ())
    except MissingFiles as error:
      if not files.optional:
        yield SplitRows(task.name, split, missing=str(error))
    except UserError as error:
      path, reader = next(iter(files.layouts[0].items()))
      unread = index.FileIndex(
        reader, path, None, num_faults=1, faults=[str(error)]
      )
      yield SplitRows(task.name, split, [unread])
