"""Checks the caches that a run reads, before its first step."""

import dataclasses
import os
import shlex

import seqio

from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem
from synth_mtf.tasks import cache_damage, cache_record, data_settings
from synth_mtf.tasks.cache_record import COMPLETED, Record, Split
from synth_mtf.tasks.caching import (
  definition_of,
  size_of_files,
  source_faults,
  vocabularies_of,
  vocabulary_faults,
)
from synth_mtf.tasks.inspection import SplitRows
from synth_mtf.tasks.task_file import get


def check(name: str, split: str) -> None:
  """Checks the caches that a run is going to read, before it starts.

  Args:
    name: a task or a mixture. seqio's global cache folders have its tasks.
    split: read of all tasks that have it.

  Raises:
    UserError: no task has the split, a task is not in a cache, its cache is
      half-written or lacks the split or a file, a file is not what was written,
      or it was written with another vocabulary, for another definition of the
      task, or from other files.
  """
  missing = []
  changed = []
  uncached = []
  subtasks = seqio.get_subtasks(get(name))
  for task in subtasks:
    folder = _folder(task)
    if folder is None:
      uncached.append(task.name)
      continue
    record = cache_record.read(folder)
    cache = f'the cache {folder}'
    if record is None:  # seqio's own job leaves none
      missing += [f'{cache} {x}' for x in _damage(task, folder, split)]
    else:
      missing += [f'{cache} {x}' for x in _missing(task, folder, record, split)]
      changed += [f'{cache} {x}' for x in _changed(task, record, split)]
  faults = missing + changed
  if changed:
    faults.append(
      'Give the run the vocabulary, the tasks and the files of the cache, or '
      f'write another cache:\n{command(name, "ANOTHER_CACHE")}'
    )
  if uncached:
    searched = ', '.join(seqio.get_global_cache_dirs())
    faults.append(
      f'not in the cache {searched}: {", ".join(uncached)}. Write them:\n'
      f'{command(name, seqio.get_global_cache_dirs()[0])}'
    )
  if faults:
    raise UserError('\n'.join(faults))
  known: set[str] = set().union(*[task.splits for task in subtasks])
  if split not in known:
    raise UserError(
      f'{name} has no split {split!r} in the cache; it has '
      f'{", ".join(sorted(known))}.'
    )


def _folder(task: seqio.Task) -> str | None:
  """Returns the folder in which a task is cached, or begun to be."""
  for cache_dir in seqio.get_global_cache_dirs():
    folder = cache_record.folder_of(cache_dir, task.name)
    for mark in (COMPLETED, cache_record.RECORD):
      if filesystem.exists(os.path.join(folder, mark)):
        return folder
  return None


def _missing(
  task: seqio.Task, folder: str, record: Record, split: str
) -> list[str]:
  """Returns what a cache lacks of a split that a run reads."""
  same_command = _same_command(task, folder, record)
  if record.task != task.name:
    return [f'is that of the task {record.task}, copied or renamed: remove it']
  cached = record.splits.get(split)
  is_begun = cached and not cached.is_complete
  if is_begun or not cache_record.is_completed(folder):
    counts = [
      f'{len(part.shards)} of {part.num_shards} files of {name}'
      for name, part in record.splits.items()
    ]
    return [
      f'is half-written: it has {", ".join(counts)}. This command goes on with '
      f'it:\n{same_command}'
    ]
  if cached is None:
    if split not in record.task_splits:
      return []
    return [
      f'has no {split!r}, which the task has; it was written by\n'
      f'{same_command}\nwhich adds it with --split={split}'
    ]
  if not any(shard.examples for shard in cached.shards.values()):
    return [f'has no example of {split!r}: the task leaves all its rows out']
  faults = cache_damage.of_recorded(folder, split, cached)
  if not faults:
    return []
  return [
    f'is damaged: {"; ".join(faults)}. Remove what is damaged, and this '
    f'command writes it again:\n{same_command}'
  ]


def _damage(task: seqio.Task, folder: str, split: str) -> list[str]:
  """Returns the damage to a cache of seqio's own job, which has no record."""
  if cache_damage.is_absent(folder, split) and split not in task.splits:
    return []
  faults = cache_damage.of_unrecorded(folder, split, task)
  if not faults:
    return []
  return [
    f'is damaged: {"; ".join(faults)}. Copy it again, or write another one.'
  ]


def _same_command(task: seqio.Task, folder: str, record: Record) -> str:
  """Returns the command that wrote a cache, for where the cache is now."""
  cache_dir = folder.removesuffix(seqio.get_task_dir_from_name(task.name))
  words = ['synth-mtf', *record.command]
  if cache_dir.rstrip('/') not in ' '.join(words):
    words.append(f'--out={cache_dir.rstrip("/")}')  # the last one counts
  return shlex.join(words)


def _changed(task: seqio.Task, record: Record, split: str) -> list[str]:
  """Returns what differs between a cache and what a run would write."""
  faults = vocabulary_faults(record, vocabularies_of(task))
  cached = record.splits.get(split)
  if cached is not None:
    faults += source_faults(split, cached, _here(task, split, cached))
  return faults


def _here(task: seqio.Task, split: str, cached: Split) -> Split:
  """Describes a cached split as this process would write it.

  What it cannot know, since the files are elsewhere, is as in the cache.
  """
  definition = definition_of(task, split)
  here = dataclasses.replace(cached, definition=definition)
  official = getattr(task.source, 'official', None)
  are_files = cached.size > 0
  if not (are_files and official and official.existing_files(split)):
    return here
  return dataclasses.replace(
    here,
    digest=SplitRows.of(official, split).digest,
    size=size_of_files(official, split),
  )


def command(name: str, out: str) -> str:
  """Returns the command that caches what a name of this run stands for."""
  settings = data_settings.settings()
  words = ['synth-mtf', 'cache', f'--task={name}']
  for flag in ('data_dir', 'vocabulary', 'task_file'):
    value = getattr(settings, flag)
    if value:
      words.append(f'--{flag}={value}')
  return shlex.join([*words, f'--out={out}'])
