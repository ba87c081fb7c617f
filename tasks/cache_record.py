"""What is in a cache of a task: its record, next to seqio's own files.

`synth-mtf cache` writes seqio's cached tasks: for each split, files of
TFRecords (shards), `info.<split>.json` and `stats.<split>.json`, and
`COMPLETED` once all are there. Next to them, `synth_mtf.json` records what they
were written from, and each file once it has been read back.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import seqio

from synth_mtf.storage import filesystem, json_files
from synth_mtf.tasks import data_settings

RECORD = 'synth_mtf.json'
COMPLETED = 'COMPLETED'
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Shard:
  """A complete file of a split.

  Attributes:
    examples: their number.
    size: bytes of the file.
    digest: of the serialized examples, in order.
    tokens: of each feature, without padding and EOS.
    max_tokens: the same of the longest example.
  """

  examples: int
  size: int
  digest: str
  tokens: Mapping[str, int]
  max_tokens: Mapping[str, int]


@dataclasses.dataclass
class Split:
  """A split of a task in a cache.

  Attributes:
    num_shards: number of its files.
    rows: rows of the source, before preprocessing; None if unknown.
    source: 'files', or the dataset of TensorFlow Datasets.
    definition: digest of how rows are read and preprocessed.
    digest: of the content of all files; '' if they are large, or for TFDS.
    size: bytes of all files; 0 for TFDS.
    features: shape and type of each feature, as in seqio's `info`.
    shards: the complete ones, by number.
  """

  num_shards: int
  rows: int | None
  source: str
  definition: str
  digest: str = ''
  size: int = 0
  features: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  shards: dict[int, Shard] = dataclasses.field(default_factory=dict)

  @property
  def is_complete(self) -> bool:
    return len(self.shards) == self.num_shards

  @property
  def content(self) -> str:
    """What the rows come from, in words."""
    if not self.size:
      return self.source
    digest = f' with the digest {self.digest}' if self.digest else ''
    return f'{self.source} of {self.size:,} bytes{digest}'


@dataclasses.dataclass
class Record:
  """What `synth_mtf.json` holds.

  Attributes:
    task: its name.
    command: the words after `synth-mtf` that write this cache.
    vocabularies: name, size and digest of each feature's.
    task_splits: all splits that the task had, cached or not.
    data: says that the rows were generated samples; else ''.
    splits: those in the cache, complete or not.
  """

  task: str
  command: Sequence[str]
  vocabularies: Mapping[str, Mapping[str, Any]]
  task_splits: Sequence[str]
  data: str
  splits: dict[str, Split] = dataclasses.field(default_factory=dict)

  @property
  def is_complete(self) -> bool:
    return all(split.is_complete for split in self.splits.values())


def folder_of(cache_dir: str, task: str) -> str:
  """Returns the folder of a task in a folder of caches."""
  return os.path.join(cache_dir, seqio.get_task_dir_from_name(task))


def shard_path(folder: str, split: str, number: int, num_shards: int) -> str:
  """Returns the path of a shard, which seqio's reader expects."""
  prefix = seqio.get_cached_tfrecord_prefix(folder, split)
  return f'{prefix}-{number:05d}-of-{num_shards:05d}'


def listed(folder: str) -> list[str]:
  """Returns the names in a folder."""
  return filesystem.names(folder)


def is_completed(folder: str) -> bool:
  """Whether seqio reads the cache in a folder."""
  return filesystem.exists(os.path.join(folder, COMPLETED))


def read(folder: str) -> Record | None:
  """Returns the record in a folder, None if there is none."""
  return json_files.read(folder, RECORD, _parsed)


def write(folder: str, record: Record) -> None:
  """Writes the record of a folder."""
  content = {'format': _FORMAT, **dataclasses.asdict(record)}
  json_files.write(os.path.join(folder, RECORD), content, indent=1)
  _read_once.cache_clear()


def of_task(task: str) -> Record | None:
  """Returns the record of a task in the cache that the settings name.

  A cache that is not complete counts as none.
  """
  cache_dir = data_settings.settings().cache_dir
  if cache_dir is None:
    return None
  folder = folder_of(cache_dir, task)
  with filesystem.named_by(data_settings.name_of('cache_dir')):
    return _read_once(folder) if is_completed(folder) else None


@functools.cache
def _read_once(folder: str) -> Record | None:
  return read(folder)


def _parsed(content: Any) -> Record:
  if content.pop('format') != _FORMAT:
    raise ValueError('it was written by a newer version of synth-mtf')
  splits = {}
  for name, split in content.pop('splits').items():
    shards = {int(n): Shard(**shard) for n, shard in split['shards'].items()}
    splits[name] = Split(**{**split, 'shards': shards})
  return Record(**content, splits=splits)
