"""Writes and verifies one file of a cache: TFRecords of `tf.train.Example`."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow.compat.v1 as tf
from google.protobuf import message

from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem
from synth_mtf.tasks.cache_record import Shard

_BATCH = 256  # examples that pass from TensorFlow to Python at a time
Example = dict[str, Any]
# Called with the number of examples that have been written.
Progress = Callable[[int], None]


def write(
  path: str,
  dataset: tf.data.Dataset,
  output_features: Mapping[str, seqio.Feature],
  progress: Progress,
) -> Shard:
  """Writes the examples of a dataset, and reads them back.

  Args:
    path: local, or in a bucket.
    dataset: made in the current graph.
    output_features: those whose tokens are counted.
    progress: called from time to time.

  Raises:
    UserError: the file is not what was written.
  """
  statistics = _Statistics(output_features)
  with _writing(path) as writer:
    for example in _examples(dataset):
      record = _serialized(example)
      writer.write(record)
      statistics.add(example, record)
      if statistics.examples % _BATCH == 0:
        progress(statistics.examples)
  shard = statistics.shard(filesystem.size(path))
  verify(path, shard)
  return shard


def verify(path: str, shard: Shard) -> None:
  """Reads a file; a UserError says that it is not what was written."""
  found = fault(path, shard)
  if found:
    raise UserError(
      f'{path} is damaged: it {found}. Remove the file, and give the same '
      'command again to write it again.'
    )


def fault(path: str, shard: Shard) -> str:
  """Reads a file, and returns how it differs from what was written, or ''."""
  digest = new_digest()
  examples, problem = _read(path, digest.update)
  content = f'{examples:,} examples with the digest {digest.hexdigest()}'
  written = f'{shard.examples:,} examples with the digest {shard.digest}'
  if not problem and content == written:
    return ''
  return f'has {content}{problem}; {written} were written'


def described(
  path: str, output_features: Mapping[str, seqio.Feature]
) -> tuple[Shard, str]:
  """Returns what is in a file, and why no more of it can be read, or ''."""
  statistics = _Statistics(output_features)

  def add(record: bytes) -> None:
    stored = tf.train.Example.FromString(record).features.feature
    example = {}
    for name in output_features:
      if stored[name].HasField('int64_list'):
        example[name] = np.array(stored[name].int64_list.value, np.int64)
    statistics.add(example, record)

  _, problem = _read(path, add)
  return statistics.shard(filesystem.size(path)), problem


def names_in(paths: Sequence[str]) -> set[str]:
  """Returns the names of the features of the first example."""
  for path in paths:
    for record in tf.python_io.tf_record_iterator(path):
      names = tf.train.Example.FromString(record).features.feature
      # seqio writes the lengths of rows with a ragged feature.
      return {name for name in names if '/' not in name}
  return set()


def _read(path: str, use: Callable[[bytes], None]) -> tuple[int, str]:
  """Calls a function with each example.

  Returns their number, and why no more of them can be read, or ''.
  """
  examples = 0
  try:
    for record in tf.python_io.tf_record_iterator(path):
      examples += 1
      use(record)
  except tf.errors.OpError as error:
    return examples, f' ({error.message})'
  except message.DecodeError as error:
    return examples, f' ({error})'
  return examples, ''


def features(dataset: tf.data.Dataset) -> dict[str, Any]:
  """Returns shapes and types for seqio's reader; first sizes may vary."""
  features = {}
  for name, spec in dataset.element_spec.items():
    if not isinstance(spec, tf.TensorSpec) or (spec.shape.rank or 0) > 1:
      raise UserError(
        f'feature {name!r} cannot be cached: it is {spec}; expected a number, '
        'a text, or a list of such'
      )
    shape = [None] * spec.shape.rank
    features[name] = {'shape': shape, 'dtype': spec.dtype.name}
  return features


def _examples(dataset: tf.data.Dataset) -> Iterator[Example]:
  """Yields examples as numpy arrays."""
  batches = dataset.apply(
    tf.data.experimental.dense_to_ragged_batch(_BATCH)
  ).prefetch(2)
  iterator = tf.data.make_initializable_iterator(batches)
  batch = iterator.get_next()
  with tf.Session() as session:
    session.run([tf.tables_initializer(), iterator.initializer])
    with contextlib.suppress(tf.errors.OutOfRangeError):
      while True:
        yield from _rows(session.run(batch))


def _rows(batch: Mapping[str, Any]) -> Iterator[Example]:
  columns = {}
  for name, values in batch.items():
    if isinstance(values, tf.ragged.RaggedTensorValue):
      values = np.split(values.values, values.row_splits[1:-1])
    columns[name] = values
  for row in zip(*columns.values(), strict=True):
    yield dict(zip(columns, row, strict=True))


def _serialized(example: Example) -> bytes:
  """Returns an example as a `tf.train.Example`, as seqio's reader expects."""
  features = {}
  for name, value in example.items():
    if isinstance(value, bytes):  # NumPy would drop zeros at its end
      value = np.array([value], object)
    features[name] = _feature(np.reshape(value, [-1]))
  made = tf.train.Example(features=tf.train.Features(feature=features))
  return made.SerializeToString(deterministic=True)


def _feature(values: np.ndarray[Any, Any]) -> tf.train.Feature:
  if values.dtype.kind == 'f':
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))
  if values.dtype.kind in 'iub':
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


@contextlib.contextmanager
def _writing(path: str) -> Iterator[tf.io.TFRecordWriter]:
  """Yields a writer of TFRecords; the file appears when it is complete."""
  if filesystem.is_bucket(path):
    with tf.io.TFRecordWriter(path) as writer:
      yield writer
    return
  with (
    atomic.replacing(path) as partial,
    tf.io.TFRecordWriter(str(partial)) as writer,
  ):
    yield writer


class _Statistics:
  """Counts what is written to a file."""

  def __init__(self, features: Mapping[str, seqio.Feature]) -> None:
    self.examples = 0
    self._digest = new_digest()
    self._tokens: dict[str, int] = {}
    self._max_tokens: dict[str, int] = {}
    self._not_tokens = {}
    for name, feature in features.items():
      known = feature.vocabulary
      self._not_tokens[name] = {known.eos_id, known.pad_id} - {None}

  def add(self, example: Example, record: bytes) -> None:
    self.examples += 1
    self._digest.update(record)
    for name, not_tokens in self._not_tokens.items():
      values = np.asarray(example.get(name, ''))
      if values.dtype.kind == 'i':
        tokens = values.size
        for token in not_tokens:
          tokens -= int(np.count_nonzero(values == token))
        self._tokens[name] = self._tokens.get(name, 0) + tokens
        self._max_tokens[name] = max(self._max_tokens.get(name, 0), tokens)

  def shard(self, size: int) -> Shard:
    return Shard(
      examples=self.examples,
      size=size,
      digest=self._digest.hexdigest(),
      tokens=self._tokens,
      max_tokens=self._max_tokens,
    )


def new_digest() -> Any:
  """Returns the hash function of a cache's digests."""
  return hashlib.blake2b(digest_size=8)
