"""Finds every fault of the data before any training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import seqio

from synth_mtf.errors import UserError, nearest
from synth_mtf.tasks import data_settings
from synth_mtf.tasks.files.source import MEND, FilesDataSource, TwoSources
from synth_mtf.tasks.registering import PREFIX


def check(names: Iterable[str], splits: Sequence[str]) -> None:
  """Checks the data of tasks and mixtures before they are used.

  Every row of official files is read once; the result is kept, so that a second
  call costs nothing until a file changes. Of a corpus above 256 MB only the
  first rows of each file are read. Tasks over TFDS are not looked at.

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
      faults += _faults_of(name, splits)
    except UserError as error:
      faults.append(str(error))
  if faults:
    raise UserError('\n'.join(dict.fromkeys(faults)))


def _faults_of(name: str, splits: Sequence[str]) -> list[str]:
  tasks = seqio.get_subtasks(get(name))
  faults = []
  for split in splits:
    having = [task for task in tasks if _may_have(task, split)]
    if not having:
      known = sorted({s for task in tasks for s in task.source.splits})
      faults.append(
        f'{name} has no split {split!r}; it has {", ".join(known)}.'
      )
    for task in having:
      faults += _faults_of_split(task, split)
  return faults


def _may_have(task: seqio.Task, split: str) -> bool:
  splits = _source(task).splits
  # TFDS does not know the splits of a dataset that is not on the disk yet.
  unknown = not splits and not isinstance(_source(task), FilesDataSource)
  return unknown or split in splits


def _source(task: seqio.Task) -> seqio.DataSource:
  source = task.source
  return source.chosen if isinstance(source, TwoSources) else source


def _faults_of_split(task: seqio.Task, split: str) -> list[str]:
  source = _source(task)
  if not isinstance(source, FilesDataSource):
    return []
  skip_bad_rows = data_settings.settings().skip_bad_rows
  try:
    faults = source.faults(split)
    if faults and not skip_bad_rows:
      return [*faults, MEND]
    if source.num_input_examples(split) == 0:
      files = ', '.join(source.files(split))
      return [
        (
          f'task {task.name}, split {split!r}: no rows in {files}; expected at '
          'least one.'
        )
      ]
  except UserError as error:
    return [str(error)]
  return []


def rows(name: str, split: str) -> dict[str, int | None]:
  """Counts the rows of a split, of each task that has it.

  Args:
    name: a task or a mixture.
    split: such as `'validation'`.

  Returns:
    The number by task; None where it is not known without reading the data: of
    tasks over TFDS, and of a corpus above 256 MB.
  """
  return {
    task.name: source.num_input_examples(split)
    if isinstance(source := _source(task), FilesDataSource)
    else None
    for task in seqio.get_subtasks(get(name))
    if _may_have(task, split)
  }


def get(name: str) -> seqio.dataset_providers.DatasetProviderBase:
  """Returns the task or mixture `name`.

  Raises:
    UserError: there is none of that name; the nearest names are offered.
  """
  known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
  if name not in known:
    hint = nearest(PREFIX + name, known) or nearest(name, known)
    raise UserError(
      f'unknown task or mixture {name!r}'
      + (hint or f'; did you mean {PREFIX}en_mix?')
    )
  return seqio.get_mixture_or_task(name)
