"""Synthetic tasks for benchmarks/claims.py, each with one kind of dependency.

  claims_copy     kqzh -> kqzh: a target token depends on a position
  claims_reverse  kqzh -> hzqk: the same, from the other end
  claims_lookup   bXdYaZ -> dYaZbX: each letter is followed by the same capital
                  as in the inputs, so that the capital depends on a match
                  between two tokens
  claims_recall   bXdYdYbXbXdYdYbX: two pairs, four times, for language models
  claims_text_lm  rows of the text in the data folder's corpus/, for language
                  models
  claims_pair     d|bXdYaY| -> Y: a sentence of three letters, each followed by
                  a capital, after a sentence that asks for one of them; the
                  class depends on both sentences
  claims_single   d|bXdYaY| -> Y: the capital that the second sentence has
                  twice; the class depends on that sentence alone

A symbol is one byte. All rows of a task have the same length, so that the
position of a symbol reveals nothing about the symbol. claims_pair and
claims_single are for encoders (`model_type = 'aligned'`), whose first token's
target is the class. In claims_pair_text and claims_single_text, the target is
the capital, as text.

No validation row is a training row: of the few rows that are possible in
claims_recall, claims_pair and claims_single, many would be drawn for both.
"""

import functools
import itertools
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seqio
import tensorflow.compat.v2 as tf
from t5.data import preprocessors
from t5.evaluation import metrics

import synth_mtf.tasks.text  # noqa: F401  registers the task of the text
from synth_mtf.tasks.classification import mark_tokens


class Lengths(NamedTuple):
  """Tokens per row, including the end of the sequence."""

  inputs: int
  targets: int


_COPIED = 16  # symbols
_PAIRS = 3  # each a letter and a capital
_RECALLED, _TIMES = (
  2,
  4,
)  # pairs in a row of claims_recall; how often it has each
COPIED = Lengths(_COPIED + 1, _COPIED + 1)
LOOKED_UP = Lengths(2 * _PAIRS + 1, 2 * _PAIRS + 1)
RECALLED = Lengths(2 * _RECALLED * _TIMES, 2 * _RECALLED * _TIMES)
_SENTENCES = 2 * _PAIRS + 4  # two marks, the question and the end
CLASSIFIED = Lengths(_SENTENCES, _SENTENCES)
ANSWERED = Lengths(_SENTENCES, 1)
_SYMBOLS = np.array(list(string.ascii_letters + string.digits))
_KEYS = np.array(list(string.ascii_lowercase[:12]))
_VALUES = np.array(list(string.ascii_uppercase[:12]))
_CLASSES = _VALUES[:4]
_FEW = 6  # letters, or capitals, of the tasks with few examples of a match
_ROWS = {'train': 100_000, 'validation': 1_024}
_SEEDS = {'train': 1, 'validation': 2}
_FEATURES = {
  name: seqio.Feature(seqio.ByteVocabulary(), add_eos=True)
  for name in ('inputs', 'targets')
}
_Row = tuple[str, str]  # inputs and targets


def _copied(rng: np.random.Generator) -> _Row:
  text = ''.join(rng.choice(_SYMBOLS, _COPIED))
  return text, text


def _reversed(rng: np.random.Generator) -> _Row:
  text, _ = _copied(rng)
  return text, text[::-1]


def looked_up_row(rng: np.random.Generator) -> _Row:
  """Draws a row of claims_lookup."""
  keys = rng.choice(_KEYS, _PAIRS, replace=False)
  values = rng.choice(_VALUES, _PAIRS)
  pairs = [key + value for key, value in zip(keys, values, strict=True)]
  return ''.join(pairs), ''.join(rng.permutation(pairs))


def recalled_row(rng: np.random.Generator) -> _Row:
  """Draws a row of claims_recall."""
  keys = rng.choice(_KEYS[:_FEW], _RECALLED, replace=False)
  values = rng.choice(_VALUES[:_FEW], _RECALLED)
  pairs = [key + value for key, value in zip(keys, values, strict=True)]
  orders = [rng.permutation(pairs) for _ in range(_TIMES)]
  return '', ''.join(pair for order in orders for pair in order)


def pair_row(rng: np.random.Generator) -> _Row:
  """Draws a row of claims_pair."""
  keys = rng.choice(_KEYS[:_FEW], _PAIRS, replace=False)
  values = rng.choice(_CLASSES, _PAIRS)
  asked = rng.integers(_PAIRS)
  return _sentences(keys, values, keys[asked]), str(values[asked])


def single_row(rng: np.random.Generator) -> _Row:
  """Draws a row of claims_single."""
  keys = rng.choice(_KEYS[:_FEW], _PAIRS, replace=False)
  twice, other = rng.choice(_CLASSES, 2, replace=False)
  values = rng.permutation([twice] * (_PAIRS - 1) + [other])
  return _sentences(keys, values, rng.choice(keys)), str(twice)


def _sentences(
  keys: Iterable[str], values: Iterable[str], question: str
) -> str:
  pairs = [key + value for key, value in zip(keys, values, strict=True)]
  return f'{question}|{"".join(pairs)}|'


def rows_of(
  make: Callable[[np.random.Generator], _Row], split: str
) -> Iterator[dict[str, str]]:
  """Yields the rows of a split; training rows are not validation rows."""
  rows = _drawn(make, split)
  if split != 'validation':
    held_out = {
      *itertools.islice(_drawn(make, 'validation'), _ROWS['validation'])
    }
    rows = (row for row in rows if row not in held_out)
  for inputs, targets in itertools.islice(rows, _ROWS[split]):
    yield {'inputs': inputs, 'targets': targets}


def _drawn(
  make: Callable[[np.random.Generator], _Row], split: str
) -> Iterator[_Row]:
  """Yields rows without end; some are drawn for both splits."""
  rng = np.random.default_rng(_SEEDS[split])
  while True:
    yield make(rng)


def _dataset(
  make: Callable[[np.random.Generator], _Row],
  split: str,
  shuffle_files: bool,  # unused: rows are drawn independently
  seed: object = None,
) -> tf.data.Dataset:
  text = tf.TensorSpec([], tf.string)
  return tf.data.Dataset.from_generator(
    functools.partial(rows_of, make, split),
    output_signature={'inputs': text, 'targets': text},
  )


@seqio.map_over_dataset
def _class_of_capital(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  code = tf.strings.unicode_decode(row['targets'], 'UTF-8')
  return {**row, 'targets': 1 + code - ord(_CLASSES[0])}


@seqio.map_over_dataset
def _targets_alone(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  return {'targets': row['targets']}


def _define(
  name: str,
  make: Callable[[np.random.Generator], _Row],
  before: Sequence[Callable[..., tf.data.Dataset]] = (),
  after: Sequence[Callable[..., tf.data.Dataset]] = (),
  features: Mapping[str, seqio.Feature] = _FEATURES,
) -> None:
  seqio.TaskRegistry.add(
    name,
    source=seqio.FunctionDataSource(
      functools.partial(_dataset, make), list(_ROWS), dict(_ROWS)
    ),
    preprocessors=[
      *before,
      seqio.preprocessors.tokenize,
      seqio.preprocessors.append_eos,
      *after,
    ],
    output_features=features,
    metric_fns=[metrics.accuracy],
  )


def _define_sentences(
  name: str, make: Callable[[np.random.Generator], _Row]
) -> None:
  """Registers a task for encoders, and another with text as its target."""
  symbols = _FEATURES['inputs']
  answer = seqio.Feature(seqio.ByteVocabulary(), add_eos=False)
  _define(f'{name}_text', make, features={'inputs': symbols, 'targets': answer})
  one = seqio.Feature(
    seqio.PassThroughVocabulary(1 + len(_CLASSES)), add_eos=False
  )
  _define(
    name,
    make,
    before=[_class_of_capital],
    after=[mark_tokens],
    features={'inputs': symbols, 'targets': one, 'targets_segmentation': one},
  )


_define('claims_copy', _copied)
_define('claims_reverse', _reversed)
_define('claims_lookup', looked_up_row)
_define(
  'claims_recall',
  recalled_row,
  before=[_targets_alone],
  features={'targets': seqio.Feature(seqio.ByteVocabulary(), add_eos=False)},
)
_SPANS = seqio.TaskRegistry.get('synth_text_span_corruption')
seqio.TaskRegistry.add(
  'claims_text_lm',
  source=_SPANS.source,
  preprocessors=[
    functools.partial(
      preprocessors.rekey, key_map={'inputs': None, 'targets': 'text'}
    ),
    seqio.preprocessors.tokenize,
    preprocessors.reduce_concat_tokens,
    preprocessors.split_tokens_to_targets_length,
    _targets_alone,
  ],
  output_features={'targets': _SPANS.output_features['targets']},
)
_define_sentences('claims_pair', pair_row)
_define_sentences('claims_single', single_row)
