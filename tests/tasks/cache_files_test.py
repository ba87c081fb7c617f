"""A file of a cache gives back the values that were written."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.tasks import cache_files
from tests.tasks.rows import run

ROWS: dict[str, list[Any]] = {
  'text': [b'a zero at the end\0', b''],
  'score': [1.5, -2.0],
  'answers': [[b'one\0', b'two'], [b'three', b'']],
  'ids': [[7, 8], [9, 10]],
}


def write(path, dataset):
  with tf.Graph().as_default():
    return cache_files.write(str(path), dataset(), {}, lambda _: None)


def test_values_of_all_kinds(tmp_path):
  path = tmp_path / 'a'
  shard = write(path, lambda: tf.data.Dataset.from_tensor_slices(ROWS))
  assert (shard.examples, shard.size) == (2, path.stat().st_size)
  description = {
    'text': tf.io.FixedLenFeature([], tf.string),
    'score': tf.io.FixedLenFeature([], tf.float32),
    'answers': tf.io.FixedLenFeature([2], tf.string),
    'ids': tf.io.FixedLenFeature([2], tf.int64),
  }

  def read():
    records = tf.data.TFRecordDataset(str(path))
    return records.map(lambda x: tf.io.parse_single_example(x, description))

  for number, row in enumerate(run(read)):
    for name, values in ROWS.items():
      value = np.asarray(row[name], object).tolist()
      assert value == values[number], name


def test_no_examples(tmp_path):
  shard = write(
    tmp_path / 'a', lambda: tf.data.Dataset.from_tensor_slices(ROWS).take(0)
  )
  assert shard.examples == 0
  cache_files.verify(str(tmp_path / 'a'), shard)


def test_a_whole_file_of_other_examples_is_refused(tmp_path):
  def rows():
    return tf.data.Dataset.from_tensor_slices({'ids': [1, 2, 3]})

  first, other = tmp_path / 'a', tmp_path / 'b'
  shard = write(first, rows)
  write(other, lambda: rows().map(lambda row: {'ids': row['ids'] + 1}))
  cache_files.verify(str(first), shard)
  with pytest.raises(UserError, match=r'b is damaged: it has 3 examples'):
    cache_files.verify(str(other), shard)


def test_tables_are_refused():
  with tf.Graph().as_default():
    dataset = tf.data.Dataset.from_tensors({'table': [[1, 2], [3, 4]]})
    with pytest.raises(UserError, match="'table' cannot be cached: it is"):
      cache_files.features(dataset)
