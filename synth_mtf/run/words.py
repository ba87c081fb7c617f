"""Counts the words of the texts that a language model is evaluated on."""

import itertools
from typing import NamedTuple

import seqio
import tensorflow_datasets as tfds
from mesh_tensorflow.transformer.dataset import EvalDataset

_TEXT = 'targets_pretokenized'


class Counts(NamedTuple):
  """The words and the tokens of texts; the end of each text counts as both."""

  words: int
  tokens: int

  @property
  def tokens_per_word(self) -> float:
    return self.tokens / self.words


def count(dataset: EvalDataset, rows: int) -> Counts | None:
  """Counts the words, separated by spaces, of the first rows of a task.

  Texts are counted in full, even if the rows are shorter. Returns None if the
  rows have no texts, as packed rows.
  """
  features = seqio.get_mixture_or_task(dataset.name).output_features
  encode = features['targets'].vocabulary.encode
  words, tokens = 0, 0
  examples = tfds.as_numpy(dataset.dataset_fn())
  for example in itertools.islice(examples, rows):
    if _TEXT not in example:
      return None
    text = example[_TEXT].decode('utf-8', 'replace')
    words += len(text.split()) + 1
    tokens += len(encode(text)) + 1
  return Counts(words, tokens) if words else None
