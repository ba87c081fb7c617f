"""What is in a cache of a task: its record, next to seqio's own files.

`synth-mtf cache` writes seqio's cached tasks: for each split, files of
TFRecords (shards), `info.<split>.json` and `stats.<split>.json`, and
`COMPLETED` once all are there. Next to them, `synth_mtf.json` records what they
were written from, and each file once it has been read back.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import seqio

from synth_mtf.errors import UserError
from synth_mtf.storage import filesystem, json_files
from synth_mtf.tasks import data_settings

RECORD = 'synth_mtf.json'
COMPLETED = 'COMPLETED'
_FORMAT = 1
_INFO = re.compile(r'info\.(.+)\.json')
_MOST_SHARDS = 99_999  # the numbers in the names of files have five digits
# What TensorFlow's examples hold, as seqio's reader knows it.
_TYPES = ('bool', 'float32', 'int32', 'int64', 'string')


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
  """Returns what is in the cache of a task that the settings name.

  A cache that is not complete counts as none. Of a cache by seqio's own job,
  which leaves no record, the splits and their sizes are known.
  """
  cache_dir = data_settings.settings().cache_dir
  if cache_dir is None:
    return None
  folder = folder_of(cache_dir, task)
  with filesystem.named_by(data_settings.name_of('cache_dir')):
    return _read_once(folder) if is_completed(folder) else None


@functools.cache
def _read_once(folder: str) -> Record:
  return read(folder) or _of_seqio(folder)


def _of_seqio(folder: str) -> Record:
  """Returns what seqio's own files say of a cache without a record."""
  found = map(_INFO.fullmatch, sorted(listed(folder)))
  splits = {match[1]: of_split(folder, match[1]) for match in found if match}
  if not splits:
    raise UserError(
      f'the cache {folder} has no split: there is no info.<split>.json in it, '
      'though it is marked as complete. Copy it again, or write another one.'
    )
  return Record(
    task=os.path.basename(folder),
    command=(),
    vocabularies={},
    task_splits=[*splits],
    data='',
    splits=splits,
  )


def of_split(folder: str, split: str) -> Split:
  """Returns what seqio's own files say of a split; its rows are examples.

  Raises:
    UserError: a file is missing, or says what seqio does not write.
  """
  name = os.path.basename(seqio.get_cached_info_path(folder, split))
  described = _json(folder, name, _described)
  counts = statistics(folder, split)
  return dataclasses.replace(described, rows=counts['examples'])


def statistics(folder: str, split: str) -> Mapping[str, int]:
  """Returns seqio's numbers of the examples and tokens of a split."""
  name = os.path.basename(seqio.get_cached_stats_path(folder, split))
  return _json(folder, name, _counts)


def _json(folder: str, name: str, parse: Callable[[Any], Any]) -> Any:
  content = json_files.read(folder, name, parse)
  if content is None:
    raise UserError(
      f'the cache {folder} has no {name}, which seqio reads. Copy it again, or '
      'write another one.'
    )
  return content


def _described(content: Any) -> Split:
  """Parses `info.<split>.json`."""
  num_shards, features = content['num_shards'], content['features']
  is_number = type(num_shards) is int and 1 <= num_shards <= _MOST_SHARDS
  _expect(is_number, f'num_shards is {num_shards!r}', 'a number of files')
  for name, feature in features.items():
    size, kind = feature['shape'], feature['dtype']
    are_sizes = all(n is None or type(n) is int and n >= 0 for n in size)
    _expect(are_sizes, f'the shape of {name!r} is {size!r}', 'sizes or null')
    _expect(
      kind in _TYPES, f'{name!r} has the dtype {kind!r}', ' or '.join(_TYPES)
    )
  return Split(
    num_shards=num_shards,
    rows=None,
    source="seqio's own job",
    definition='',
    features=features,
  )


def _counts(content: Any) -> Mapping[str, int]:
  """Parses `stats.<split>.json`."""
  for name, count in {'examples': None, **content}.items():
    is_count = type(count) in (int, float) and 0 <= count < 2**63
    _expect(is_count, f'{name} is {count!r}', 'a number, 0 or more')
  return content


def _expect(condition: bool, found: str, expected: str) -> None:
  if not condition:
    raise ValueError(f'{found}; expected {expected}')


def _parsed(content: Any) -> Record:
  if content.pop('format') != _FORMAT:
    raise ValueError('it was written by a newer version of synth-mtf')
  splits = {}
  for name, split in content.pop('splits').items():
    shards = {int(n): Shard(**shard) for n, shard in split['shards'].items()}
    splits[name] = Split(**{**split, 'shards': shards})
  return Record(**content, splits=splits)
