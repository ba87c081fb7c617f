"""seqio data sources: official files, and the choice between them and TFDS."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.rows import formats
from synth_mtf.storage import filesystem
from synth_mtf.tasks import cache_record, data_settings
from synth_mtf.tasks.files import index

_CACHE_SHARD_BYTES = 64 << 20
# Files that are divided by size are read in parts of about a megabyte.
_PART_BYTES = 1 << 20
# Text larger than this is not counted, and only its first rows are checked.
_LARGE_BYTES = 256 << 20
_FIRST_ROWS = 256
_CYCLE_LENGTH = 16  # the number of files that seqio reads at a time
_CHUNK_EXAMPLES = 256
# Splits with at most this many files and bytes are cached in memory; otherwise,
# each of their many epochs would start with a delay.
_SMALL_FILES = 16
_SMALL_BYTES = 8 << 20
_SMALL_BUFFER = 1 << 12
_MOST_FILES_SHOWN = 10  # of those with faults, each with up to 20 rows
_MOST_LOGGED = 20  # rows that are skipped while they are read

FIX = (
  f'Fix the file, or set {data_settings.name_of("skip_bad_rows")} to leave '
  'such rows out.'
)


class MissingFiles(UserError):
  """The data folder has none of the files of a split."""


@dataclasses.dataclass(frozen=True)
class Split:
  """The official files of one split.

  Each layout maps relative paths, in which `*` and `**/` match names and
  folders, to the format of the files. The first layout that matches any file is
  used. If none does, an optional split is absent; otherwise, it is an error.
  """

  layouts: Sequence[Mapping[str, formats.Reader]]
  optional: bool = False

  @classmethod
  def of(
    cls, patterns: Sequence[str], reader: formats.Reader, optional: bool = False
  ) -> 'Split':
    """Returns a split in one format; each pattern is a layout."""
    return cls([{pattern: reader} for pattern in patterns], optional)

  def files(self, data_dir: str) -> dict[str, formats.Reader]:
    """Returns the reader of each file, sorted by path; {} if there are none."""
    for layout in self.layouts:
      readers = {}
      for pattern, reader in layout.items():
        for path in filesystem.find(data_dir, pattern):
          readers[path] = reader
      if readers:
        return dict(sorted(readers.items()))
    return {}

  @property
  def patterns(self) -> list[str]:
    return [pattern for layout in self.layouts for pattern in layout]


class FilesDataSource(seqio.DataSource):
  """Reads the rows of the official files in a folder.

  All rows of an indexed format are checked before the first example is used,
  and an error lists the bad rows. Parts of files are shuffled and sharded, so
  that memory use does not grow with the length of a file.
  """

  supports_arbitrary_sharding = False

  def __init__(
    self,
    task_name: str,
    splits: Mapping[str, Split],
    data_dir: str,
    named_by: str,
  ) -> None:
    """Initializes the source.

    Args:
      task_name: of the task with the rows.
      splits: the files of each split, relative to `data_dir`.
      data_dir: the folder.
      named_by: what brought it, for messages: a setting, or the line of a task
        file.
    """
    super().__init__(splits=())
    self.task_name = task_name
    self._split_files = splits
    self._data_dir = data_dir
    self.named_by = named_by
    self._skip_bad_rows = data_settings.settings().skip_bad_rows
    self._skipped = 0
    self._existing_files: dict[str, dict[str, formats.Reader]] = {}

  @property
  def splits(self) -> Sequence[str]:
    return tuple(
      name
      for name, split in self._split_files.items()
      if not split.optional or self.existing_files(name)
    )

  def existing_files(self, split: str) -> dict[str, formats.Reader]:
    """Returns the files of a split, which are searched once; may be empty."""
    if split not in self._split_files:
      return {}
    if split not in self._existing_files:
      with filesystem.named_by(self.named_by):
        files = self._split_files[split].files(self._data_dir)
      self._existing_files[split] = files
    return self._existing_files[split]

  def list_shards(self, split: str) -> Sequence[str]:
    # seqio's cache job works shard by shard. A gzip file cannot be divided.
    files = self.files(split)
    shards = 1 + self.total_bytes(files) // _CACHE_SHARD_BYTES
    if any(filesystem.is_gzip(file) for file in files):
      shards = min(shards, len(files))
    return [f'{self.task_name}-{split}-{i:05d}' for i in range(shards)]

  def num_input_examples(self, split: str) -> int | None:
    if self._too_large(split):
      return None
    return sum(file.num_examples or 0 for file in self.indexes(split))

  def files(self, split: str) -> dict[str, formats.Reader]:
    """Returns the files of a split; a UserError names the missing ones."""
    files = self.existing_files(split)
    if not files:
      patterns = self._split_files[split].patterns
      raise MissingFiles(
        f'task {self.task_name}, split {split!r}: no file '
        f'{" or ".join(patterns)} in {self._data_dir!r}'
        f'{filesystem.instead(self._data_dir, patterns)}. Put it there, or set '
        f'{data_settings.name_of("data_dir")} to the folder that has it.'
      )
    return files

  def indexes(self, split: str) -> list[index.FileIndex]:
    """Returns the index of each file, or of its first rows if too large."""
    with filesystem.named_by(self.named_by):
      return index.of_files(
        self.files(split),
        f'{self._data_dir}\n{self._split_files[split]}',
        data_settings.settings().index_dir,
        limit=_FIRST_ROWS if self._too_large(split) else None,
      )

  def total_bytes(self, files: Iterable[str]) -> int:
    """Returns the total size of files of this source."""
    with filesystem.named_by(self.named_by):
      return filesystem.total_bytes(files)

  def check(self, split: str) -> list[index.FileIndex]:
    """Returns the indexes; a UserError lists all faults, or reports no rows."""
    indexes = self.indexes(split)
    if not self._skip_bad_rows:
      malformed = [file for file in indexes if file.faults]
      faults: list[str] = []
      for file in malformed[:_MOST_FILES_SHOWN]:
        faults.extend(file.faults)
      more = len(malformed) - _MOST_FILES_SHOWN
      if more > 0:
        faults.append(f'{more:,} more files have faults')
      if faults:
        raise UserError('\n'.join([*faults, FIX]))
    if all(file.num_examples == 0 for file in indexes):
      files = [*self.files(split)]
      ellipsis = ', ...' if len(files) > _MOST_FILES_SHOWN else ''
      raise UserError(
        f'task {self.task_name}, split {split!r}: no rows in '
        f'{", ".join(files[:_MOST_FILES_SHOWN])}{ellipsis}; expected at least '
        'one.'
      )
    return indexes

  def examples(self, split: str) -> Iterator[formats.Example]:
    """Yields the examples of a split in order, as Python values."""
    for part in self._parts(split):
      yield from self._read(part)

  def _parts(self, split: str) -> list[index.Part]:
    indexes = [] if self._too_large(split) else self.check(split)
    for file in indexes:
      for line in [*file.notes, *file.faults]:
        logging.warning('%s', line)
    files = self.files(split)
    parts: list[index.Part] = []
    if all(reader.indexed for reader in files.values()):
      for file in indexes:
        parts.extend(file.parts())
    else:
      for path, reader in files.items():
        parts.extend(_parts_by_size(path, reader))
    return parts

  def _read(self, part: index.Part) -> Iterator[formats.Example]:
    with filesystem.named_by(self.named_by):
      for record, items in index.read(part):
        for item in items:
          if not isinstance(item, formats.RowError):
            yield item
          elif not isinstance(item, formats.Oddity):
            self._handle(item, record, part)

  def _handle(
    self, fault: formats.RowError, record: formats.Record, part: index.Part
  ) -> None:
    """Raises a fault or, if bad rows are skipped, logs it."""
    # The faults in an index have been logged already. Of others, only the first
    # are, because finding a line reads the file again.
    no_log = part.reader.indexed or self._skipped >= _MOST_LOGGED
    if self._skip_bad_rows and no_log:
      return
    place = part.reader.place(part.path, record.start, fault)
    if not self._skip_bad_rows:
      raise UserError(f'{place}: {fault}') from fault
    logging.warning('skipped: %s: %s', place, fault)
    self._skipped += 1

  def get_dataset(
    self,
    split: str = 'train',
    shuffle: bool = True,
    seed: int | None = None,
    shard_info: seqio.ShardInfo | None = None,
    **_kwargs: Any,
  ) -> tf.data.Dataset:
    parts = self._parts(split)
    shards = shard_info or seqio.ShardInfo(0, 1)
    ds = tf.data.Dataset.range(len(parts))
    ds = ds.shard(shards.num_shards, shards.index)
    if shuffle:
      ds = ds.shuffle(len(parts), seed=seed)
    ds = self._load(parts, ds, mixed=shuffle)
    files: list[str] = []
    for path, reader in self.files(split).items():
      files.extend(reader.files(path))
    if len(files) > _SMALL_FILES or self.total_bytes(files) > _SMALL_BYTES:
      return ds
    ds = ds.cache()
    if shuffle:
      ds = ds.shuffle(_SMALL_BUFFER, seed=seed)
    return ds

  @tf.autograph.experimental.do_not_convert
  def _load(
    self, parts: Sequence[index.Part], numbers: tf.data.Dataset, mixed: bool
  ) -> tf.data.Dataset:
    """Returns the examples of the parts, sequentially or interleaved.

    Python parses them and passes them to TensorFlow in chunks, because a call
    per row would cost more than the row itself.
    """
    schema = parts[0].reader.schema
    in_chunks = not any(spec.is_list for spec in tf.nest.flatten(schema))
    signature = tf.nest.map_structure(
      lambda spec: tf.TensorSpec(
        [None] if in_chunks or spec.is_list else [], spec.dtype
      ),
      schema,
    )

    def rows(numbers: Any) -> Iterator[Any]:
      streams = [self._read(parts[number]) for number in numbers]
      examples = _in_turns(streams) if mixed else itertools.chain(*streams)
      return _chunks(examples) if in_chunks else examples

    def load(numbers: tf.Tensor) -> tf.data.Dataset:
      return tf.data.Dataset.from_generator(
        rows, output_signature=signature, args=(numbers,)
      )

    ds = numbers.batch(_CYCLE_LENGTH).flat_map(load).prefetch(2)
    return ds.unbatch() if in_chunks else ds

  def _too_large(self, split: str) -> bool:
    files = self.files(split)
    indexed = all(reader.indexed for reader in files.values())
    return not indexed and self.total_bytes(files) > _LARGE_BYTES


def _parts_by_size(path: str, reader: formats.Reader) -> list[index.Part]:
  """Divides an unindexed file; the reader of a part skips to the next line."""
  if filesystem.is_gzip(path):
    return [index.Part(reader, path)]
  starts = range(0, filesystem.total_bytes([path]), _PART_BYTES)
  return [index.Part(reader, path, s, s + _PART_BYTES) for s in starts]


def _in_turns(
  parts: Sequence[Iterator[formats.Example]],
) -> Iterator[formats.Example]:
  """Yields the first example of each part, then the second of each, ..."""
  for examples in itertools.zip_longest(*parts):
    for example in examples:
      if example is not None:
        yield example


def _chunks(examples: Iterator[formats.Example]) -> Iterator[Any]:
  """Groups examples into chunks, in each of which a feature is a list."""
  while rows := list(itertools.islice(examples, _CHUNK_EXAMPLES)):
    yield tf.nest.map_structure(lambda *values: list(values), *rows)


@dataclasses.dataclass(eq=False)
class TwoSources:
  """Delegates to the official files if a folder is set, else to TFDS.

  The source is chosen at each use, so that tasks can be registered before the
  settings are known. Some tasks have only official files.
  """

  task_name: str
  split_files: Mapping[str, Split]
  tfds: seqio.TfdsDataSource | None
  # Of the files of a task file, and the line there that names them.
  folder: str | None = None
  named_by: str = ''

  caching_permitted = True  # seqio asks at registration

  @property
  def official(self) -> FilesDataSource | None:
    """The official files, or None if the settings name no folder."""
    name = self.task_name
    settings = data_settings.settings()
    data_dir = self.folder or settings.data_dir_of(name)
    if data_dir is None:
      return None
    named_by = self.named_by or settings.name_of_data_dir(name)
    return FilesDataSource(name, self.split_files, data_dir, named_by)

  @property
  def chosen(self) -> FilesDataSource | seqio.TfdsDataSource:
    """The source that the current settings select."""
    source = self.official or self.tfds
    if source is None:
      files = [split.patterns[0] for split in self.split_files.values()]
      raise UserError(
        f'task {self.task_name} is not in TensorFlow Datasets; set '
        f'{data_settings.name_of("data_dir")} to a folder with its files: '
        f'{", ".join(files)}'
      )
    return source

  @property
  def splits(self) -> Sequence[str]:
    """All splits; a cache knows them without the files."""
    cached = cache_record.of_task(self.task_name)
    return cached.task_splits if cached else self.chosen.splits

  def __getattr__(self, name: str) -> Any:
    # Python asks for such names when it copies, and after a property failed.
    if name.startswith('__') or name in ('official', 'chosen'):
      raise AttributeError(name)
    return getattr(self.chosen, name)

  def num_input_examples(self, split: str) -> int | None:
    cached = cache_record.of_task(self.task_name)
    if cached and split in cached.splits:
      return cached.splits[split].rows
    source = self.chosen
    return source.num_input_examples(split) if split in source.splits else 0
