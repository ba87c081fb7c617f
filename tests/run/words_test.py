"""Words and tokens of the texts of a task, and perplexity per word."""

import pytest
import seqio
import tensorflow as tf
from mesh_tensorflow.transformer.dataset import EvalDataset

from synth_mtf.run import words

NAME = 'words_test'


def no_rows(split, shuffle_files):
  raise AssertionError('the rows are those of the dataset')


@pytest.fixture
def task():
  feature = seqio.Feature(seqio.ByteVocabulary())
  seqio.TaskRegistry.add(
    NAME,
    source=seqio.FunctionDataSource(no_rows, ['validation']),
    output_features={'targets': feature},
  )
  yield
  seqio.TaskRegistry.remove(NAME)


def counts(texts, rows, feature='targets_pretokenized'):
  rows_of = tf.data.Dataset.from_tensor_slices({feature: texts})
  dataset = EvalDataset(NAME, lambda: rows_of, None, None)
  return words.count(dataset, rows)


def test_words_and_tokens_with_the_ends_of_texts(task):
  found = counts(['ab c', 'def', 'not counted'], rows=2)
  assert found == (2 + 1 + 1 + 1, 4 + 1 + 3 + 1)
  assert found.tokens_per_word == 9 / 5


def test_rows_without_texts(task):
  assert counts(['ab'], 1, 'targets') is None
  assert counts([], 1) is None
