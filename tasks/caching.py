"""Writes seqio's cached tasks, without Apache Beam.

A cache holds examples as they are at the task's `CacheDatasetPlaceholder`:
tokens of whole texts, before EOS, trimming, packing and span corruption. It
therefore serves runs with any sequence length. Its files are TFRecords, which
TensorFlow reads on any host; official files and task files are read in Python.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow.compat.v1 as tf

from synth_mtf import paths
from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem
from synth_mtf.tasks import (
  cache_files,
  cache_record,
  data_settings,
  vocabulary,
)
from synth_mtf.tasks.cache_record import COMPLETED, Record, Split
from synth_mtf.tasks.files.source import (
  FilesDataSource,
  MissingFiles,
  TwoSources,
)
from synth_mtf.tasks.inspection import SplitRows

# Training data has many files, because seqio shuffles the files, but within
# them only about a thousand neighbouring examples.
_TRAIN_SHARDS = 64
_ROWS_PER_SHARD = 1024
_ANOTHER = (
  'Write another cache: give `synth-mtf cache` another --out, or remove this '
  'folder first.'
)


@dataclasses.dataclass
class TaskCache:
  """The cache of a task that is written, or goes on being written.

  Attributes:
    task: the task.
    folder: of this cache.
    record: what is in it and what is to be written.
    without_files: splits that are left out because there are no files.
  """

  task: seqio.Task
  folder: str
  record: Record
  without_files: Sequence[str]

  def unwritten(self, split: str) -> list[int]:
    """Returns the numbers of the files of a split that are not there yet."""
    planned = self.record.splits[split]
    return [
      number
      for number in range(planned.num_shards)
      if not self._has(split, number)
    ]

  def _has(self, split: str, number: int) -> bool:
    shard = self.record.splits[split].shards.get(number)
    if shard is None:
      return False
    path = self._path(split, number)
    return filesystem.exists(path) and filesystem.size(path) == shard.size

  def _path(self, split: str, number: int) -> str:
    num_shards = self.record.splits[split].num_shards
    return cache_record.shard_path(self.folder, split, number, num_shards)

  @contextlib.contextmanager
  def opened(self) -> Iterator[None]:
    """Records what is to be written, and keeps other processes from writing it.

    Raises:
      UserError: another process writes this cache, or has written it meanwhile
        with another vocabulary or from other files.
    """
    filesystem.make_folder(self.folder)
    with atomic.sole_writer(self.folder, '`synth-mtf cache`'):
      _check_unchanged(self.folder, self.record)
      self.record.splits.update(_begun(self.folder))
      cache_record.write(self.folder, self.record)
      yield

  def write(
    self, split: str, number: int, progress: cache_files.Progress
  ) -> None:
    """Writes a file, reads it back and records it.

    Raises:
      UserError: the file is not what was written.
    """
    planned = self.record.splits[split]
    path = self._path(split, number)
    with tf.Graph().as_default():
      dataset = _dataset(self.task, split, number, planned.num_shards)
      planned.features = cache_files.features(dataset)
      shard = cache_files.write(
        path, dataset, self.task.output_features, progress
      )
    planned.shards[number] = shard
    cache_record.write(self.folder, self.record)

  def finish(self, split: str) -> None:
    """Writes seqio's description and statistics of a split."""
    planned = self.record.splits[split]
    info = {
      'num_shards': planned.num_shards,
      'features': planned.features,
      'seqio_version': seqio.__version__,
    }
    _write_json(seqio.get_cached_info_path(self.folder, split), info)
    statistics = totals(planned)
    _write_json(seqio.get_cached_stats_path(self.folder, split), statistics)

  def complete(self) -> None:
    """Marks the cache as complete, if all its splits are."""
    if self.record.is_complete:
      atomic.write(os.path.join(self.folder, COMPLETED), '')

  def verify(self, split: str) -> None:
    """Reads the files of a split; a UserError names one that has changed."""
    for number, shard in self.record.splits[split].shards.items():
      if self._has(split, number):
        cache_files.verify(self._path(split, number), shard)


def begin(
  task: seqio.Task,
  cache_dir: str,
  splits: Sequence[str] | None,
  command: Sequence[str],
) -> TaskCache:
  """Plans the cache of a task, or goes on with one that was begun.

  Nothing is written.

  Args:
    task: whose preprocessors have a `CacheDatasetPlaceholder`.
    cache_dir: the folder of all caches.
    splits: those to write, if the task has them; by default all with files.
    command: the words after `synth-mtf` that write this cache.

  Raises:
    UserError: the task cannot be cached, its rows are malformed, or the cache
      was begun with another vocabulary or from other files.
  """
  if not task.supports_caching:
    raise UserError(
      f'task {task.name} cannot be cached: there is no '
      'seqio.CacheDatasetPlaceholder among its preprocessors.'
    )
  record = Record(
    task=task.name,
    command=command,
    vocabularies=vocabularies_of(task),
    task_splits=list(task.source.splits),
    data=_data(task),
  )
  folder = cache_record.folder_of(cache_dir, task.name)
  begun = _begun(folder)
  unfinished = [s for s, split in begun.items() if not split.is_complete]
  without_files = []
  for split in record.task_splits:
    if splits is not None and split not in (*splits, *unfinished):
      continue
    try:
      record.splits[split] = _plan(task, split)
    except MissingFiles:
      if splits is not None:
        raise
      without_files.append(split)
  _check_unchanged(folder, record)
  record.splits.update(begun)
  return TaskCache(task, folder, record, without_files)


def _begun(folder: str) -> dict[str, Split]:
  """Returns what an earlier command has written to a folder."""
  if not filesystem.is_bucket(folder):
    atomic.check_writable(folder, '--out')
  record = cache_record.read(folder)
  if record is not None:
    return record.splits
  if filesystem.names(folder):
    raise UserError(
      f'{folder} has files, but none is the {cache_record.RECORD} of '
      '`synth-mtf cache`; nothing was changed. Give another --out.'
    )
  return {}


def _check_unchanged(folder: str, now: Record) -> None:
  """Refuses to go on with a cache of another vocabulary or other data."""
  then = cache_record.read(folder)
  if then is None:
    return
  faults = vocabulary_faults(then, now.vocabularies)
  for split, planned in now.splits.items():
    if split in then.splits:
      faults += source_faults(split, then.splits[split], planned)
  if faults:
    raise UserError(f'the cache {folder} {"; ".join(faults)}. {_ANOTHER}')


def _plan(task: seqio.Task, split: str) -> Split:
  """Describes a split whose rows have been checked, without any shard."""
  source = _chosen(task)
  num_shards = len(source.list_shards(split))
  if not isinstance(source, FilesDataSource):
    name = source.tfds_dataset.name if hasattr(source, 'tfds_dataset') else ''
    return Split(
      num_shards=num_shards,
      rows=source.num_input_examples(split),
      source=f'TensorFlow Datasets {name}'.strip(),
      definition=definition_of(task, split),
    )
  source.check(split)
  rows = source.num_input_examples(split)
  if split == 'train':
    most = _TRAIN_SHARDS if rows is None else rows // _ROWS_PER_SHARD
    num_shards = max(num_shards, min(most, _TRAIN_SHARDS))
  return Split(
    num_shards=num_shards,
    rows=rows,
    source='files',
    definition=definition_of(task, split),
    digest=SplitRows.of(source, split).digest,
    size=size_of_files(source, split),
  )


def size_of_files(source: FilesDataSource, split: str) -> int:
  """Returns the number of bytes of all files of a split."""
  paths: list[str] = []
  for path, reader in source.existing_files(split).items():
    paths.extend(reader.files(path))
  return source.total_bytes(paths)


def _chosen(task: seqio.Task) -> seqio.DataSource:
  return getattr(task.source, 'chosen', task.source)


def definition_of(task: seqio.Task, split: str) -> str:
  """Returns a digest of how rows are read and preprocessed before the cache."""
  steps = []
  for preprocessor in task.preprocessors:
    if isinstance(preprocessor, seqio.CacheDatasetPlaceholder):
      break
    steps.append(seqio.utils.function_name(preprocessor))
  formats = ''
  if isinstance(task.source, TwoSources):
    formats = repr(task.source.split_files[split].layouts)
  return hashlib.sha256(f'{formats} {steps}'.encode()).hexdigest()[:16]


def _data(task: seqio.Task) -> str:
  is_ours = isinstance(task.source, TwoSources) and not task.source.folder
  has_samples = is_ours and data_settings.settings().has_samples(task.name)
  return paths.GENERATED if has_samples else ''


def vocabularies_of(task: seqio.Task) -> dict[str, dict[str, Any]]:
  """Describes the vocabulary of each feature."""
  return {
    name: vocabulary.describe(feature.vocabulary)
    for name, feature in task.output_features.items()
  }


def _dataset(
  task: seqio.Task, split: str, number: int, num_shards: int
) -> tf.data.Dataset:
  """Returns the examples of a shard: the same in every process.

  Training rows are shuffled; other splits keep the order of their files.
  """
  name = f'{task.name} {split} {number} of {num_shards}'
  seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], 'big')
  dataset = _chosen(task).get_dataset(
    split=split,
    shuffle=split == 'train',
    seed=seed,
    shard_info=seqio.ShardInfo(number, num_shards),
  )
  return task.preprocess_precache(dataset, seed=seed)


def totals(split: Split) -> dict[str, int]:
  """Returns the numbers of examples and tokens, as in seqio's `stats`."""
  result = {'examples': 0}
  for shard in split.shards.values():
    result['examples'] += shard.examples
    for name, tokens in shard.tokens.items():
      key = f'{name}_tokens'
      result[key] = result.get(key, 0) + tokens
    for name, tokens in shard.max_tokens.items():
      key = f'{name}_max_tokens'
      result[key] = max(result.get(key, 0), tokens)
  return result


def digest(split: Split) -> str:
  """Returns the digest of a complete split: that of its files' digests."""
  of_all = cache_files.new_digest()
  for number in range(split.num_shards):
    of_all.update(split.shards[number].digest.encode())
  return of_all.hexdigest()


def _write_json(path: str, content: Mapping[str, Any]) -> None:
  atomic.write(path, json.dumps(content, indent=2, sort_keys=True))


def vocabulary_faults(
  record: Record, vocabularies: Mapping[str, Mapping[str, Any]]
) -> list[str]:
  """Returns whether a cache has another vocabulary."""
  for name, now in vocabularies.items():
    then = record.vocabularies[name]
    if then['sha256'] != now['sha256']:
      return [
        f'was written with the vocabulary {then["name"]!r} of {then["size"]} '
        f'pieces for {name}; {now["name"]!r} of {now["size"]} pieces, which is '
        'set here (--vocabulary), has others'
      ]
  return []


def source_faults(split: str, then: Split, now: Split) -> list[str]:
  """Returns what has changed in the source of a split."""
  if then.definition != now.definition:
    return [
      f'was written for another definition of the task: its format, its '
      f'templates or its preprocessing of {split!r} have changed'
    ]
  if then.content != now.content:
    return [
      f'was written from other data of {split!r}: then {then.content}, now '
      f'{now.content}'
    ]
  return []
