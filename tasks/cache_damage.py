"""Finds damage to a split of a cache before a run reads it.

seqio reads whatever is there. A file that is cut off between two examples, or
another task's file, would give a run fewer or other examples without an error.
"""

import concurrent.futures
import dataclasses
import fnmatch
import os
from collections.abc import Sequence
from typing import Any

import seqio
import tensorflow.compat.v1 as tf

from synth_mtf.storage import filesystem, json_files
from synth_mtf.tasks import cache_files, cache_record, caching
from synth_mtf.tasks.cache_record import Split

# Splits of at most so many bytes are read whole, which takes a second or less.
_MOST_BYTES_READ = 32 << 20
_MOST_BYTES_PARSED = 4 << 20  # to count tokens
_MOST_SHOWN = 3  # faults of the files of a split
_REQUESTS = 16  # to a bucket, at a time


def of_recorded(folder: str, split: str, written: Split) -> list[str]:
  """Returns the damage to a complete split that `synth-mtf cache` wrote.

  Compares the size of each file and seqio's descriptions with the record. If
  the split is small, also compares the digest of each file.
  """
  faults = _missing(folder, split) or _misplaced(
    folder, split, written.num_shards
  )
  if faults:
    return faults
  info = {'num_shards': written.num_shards, 'features': written.features}
  for path, expected in (
    (seqio.get_cached_info_path(folder, split), info),
    (seqio.get_cached_stats_path(folder, split), caching.totals(written)),
  ):
    found = _description(path)
    for key, value in expected.items():
      if found.get(key) != value:
        was = f'{key} is {found.get(key)!r}; {value!r} was written'
        faults.append(f'in {os.path.basename(path)}, {was}')
        break
  paths = _paths(folder, split, written.num_shards)
  sizes = _sizes(paths)
  is_small = sum(sizes) <= _MOST_BYTES_READ
  for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
    shard = written.shards[number]
    fault = ''
    if size != shard.size:
      fault = f'has {size:,} bytes; {shard.size:,} were written'
    elif is_small:
      fault = cache_files.fault(path, shard)
    if fault:
      faults.append(f'{os.path.basename(path)} {fault}')
  return _shortened(faults)


def of_unrecorded(folder: str, split: str, task: seqio.Task) -> list[str]:
  """Returns the damage to a split that seqio's own job wrote.

  Only seqio's descriptions say what was written: the number of files, of
  examples and of tokens. Of a small split, examples are counted; of a very
  small one, tokens as well.
  """
  faults = _missing(folder, split)
  if faults:
    return faults
  described = cache_record.of_split(folder, split)
  faults = _misplaced(folder, split, described.num_shards)
  if faults:
    return faults
  paths = _paths(folder, split, described.num_shards)
  size = sum(_sizes(paths))
  stats = cache_record.statistics(folder, split)
  if not size or not stats['examples']:
    return [f'it has no example of {split!r}']
  if size > _MOST_BYTES_READ:
    return _misdescribed(folder, split, paths, described)
  counted = task.output_features if size <= _MOST_BYTES_PARSED else {}
  read = dataclasses.replace(described, shards={})
  for number, path in enumerate(paths):
    read.shards[number], problem = cache_files.described(path, counted)
    if problem:
      faults.append(f'{os.path.basename(path)} cannot be read{problem}')
  for key, found in caching.totals(read).items():
    if found != stats.get(key, found):
      faults.append(
        f'{key} of {split!r} are {found:,}; {stats[key]:,} were written'
      )
  return _shortened(faults or _misdescribed(folder, split, paths, described))


def _misdescribed(
  folder: str, split: str, paths: Sequence[str], described: Split
) -> list[str]:
  """Returns whether the first example is not as seqio's file describes it."""
  name = os.path.basename(seqio.get_cached_info_path(folder, split))
  try:
    with tf.Graph().as_default(), tf.Session() as session:
      cache = seqio.dataset_providers._CachedDataSource(  # noqa: SLF001
        folder, split
      )
      dataset = cache.get_dataset(split, shuffle=False)
      session.run(tf.data.make_one_shot_iterator(dataset).get_next())
  except Exception:  # of seqio or TensorFlow: it may be anything
    return [f'its files do not hold what {name} describes']
  unknown = cache_files.names_in(paths) - described.features.keys()
  if unknown:
    return [f'{name} leaves out {_listed(unknown)} in its files']
  return []


def is_absent(folder: str, split: str) -> bool:
  """Whether a cache has none of the files that describe a split to seqio."""
  return len(_missing(folder, split)) == 2


def _missing(folder: str, split: str) -> list[str]:
  """Returns which files that describe a split to seqio are missing."""
  present = cache_record.listed(folder)
  paths = (
    seqio.get_cached_info_path(folder, split),
    seqio.get_cached_stats_path(folder, split),
  )
  names = map(os.path.basename, paths)
  return [f'{name} is missing' for name in names if name not in present]


def _misplaced(folder: str, split: str, num_shards: int) -> list[str]:
  """Returns which data files are missing, or would be read as well."""
  present = cache_record.listed(folder)
  prefix = os.path.basename(seqio.get_cached_tfrecord_prefix(folder, split))
  pattern = f'{prefix}-*-of-*{num_shards}'  # seqio's
  expected = map(os.path.basename, _paths(folder, split, num_shards))
  read = {name for name in present if fnmatch.fnmatchcase(name, pattern)}
  known = set(expected)
  faults = []
  if known - read:
    faults.append(f'{_listed(known - read)} missing')
  if read - known:
    faults.append(f'{_listed(read - known)} not part of it, but would be read')
  return faults


def _paths(folder: str, split: str, num_shards: int) -> list[str]:
  return [
    cache_record.shard_path(folder, split, number, num_shards)
    for number in range(num_shards)
  ]


def _sizes(paths: Sequence[str]) -> list[int]:
  with concurrent.futures.ThreadPoolExecutor(_REQUESTS) as pool:
    return list(pool.map(filesystem.size, paths))


def _description(path: str) -> dict[str, Any]:
  """Returns one of seqio's JSON files; a UserError if it is damaged."""
  folder, name = os.path.split(path)
  return json_files.read(folder, name, dict) or {}


def _listed(names: set[str]) -> str:
  shown = sorted(names)
  more = len(shown) - _MOST_SHOWN
  words = ', '.join(shown[:_MOST_SHOWN])
  if more > 0:
    words += f' and {more:,} more'
  return f'{words} {"is" if len(shown) == 1 else "are"}'


def _shortened(faults: Sequence[str]) -> list[str]:
  more = len(faults) - _MOST_SHOWN
  if more <= 0:
    return [*faults]
  return [*faults[:_MOST_SHOWN], f'and {more:,} more']
