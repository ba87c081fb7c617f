"""Synthetic tasks for benchmarks/claims.py, each with one kind of dependency.

  claims_copy     kqzh -> kqzh: a target token depends on a position
  claims_reverse  kqzh -> hzqk: the same, from the other end
  claims_lookup   bXdYaZ -> dYaZbX: each letter is followed by the same capital
                  as in the inputs, so that the capital depends on a match
                  between two tokens

A symbol is one byte. All rows of a task have the same length, so that the
position of a symbol reveals nothing about the symbol.
"""

import functools
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import seqio
import tensorflow.compat.v2 as tf
from t5.evaluation import metrics


class Lengths(NamedTuple):
  """Tokens per row, including the end of the sequence."""

  inputs: int
  targets: int


_COPIED = 16  # symbols
_PAIRS = 3  # each a letter and a capital
COPIED = Lengths(_COPIED + 1, _COPIED + 1)
LOOKED_UP = Lengths(2 * _PAIRS + 1, 2 * _PAIRS + 1)
_SYMBOLS = np.array(list(string.ascii_letters + string.digits))
_KEYS = np.array(list(string.ascii_lowercase[:12]))
_VALUES = np.array(list(string.ascii_uppercase[:12]))
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


def _looked_up(rng: np.random.Generator) -> _Row:
  keys = rng.choice(_KEYS, _PAIRS, replace=False)
  values = rng.choice(_VALUES, _PAIRS)
  pairs = [key + value for key, value in zip(keys, values, strict=True)]
  return ''.join(pairs), ''.join(rng.permutation(pairs))


def _rows(
  make: Callable[[np.random.Generator], _Row], split: str
) -> Iterator[dict[str, str]]:
  rng = np.random.default_rng(_SEEDS[split])
  for _ in range(_ROWS[split]):
    inputs, targets = make(rng)
    yield {'inputs': inputs, 'targets': targets}


def _dataset(
  make: Callable[[np.random.Generator], _Row],
  split: str,
  shuffle_files: bool,  # unused: rows are drawn independently
  seed: object = None,
) -> tf.data.Dataset:
  text = tf.TensorSpec([], tf.string)
  return tf.data.Dataset.from_generator(
    functools.partial(_rows, make, split),
    output_signature={'inputs': text, 'targets': text},
  )


for _name, _make in {
  'claims_copy': _copied,
  'claims_reverse': _reversed,
  'claims_lookup': _looked_up,
}.items():
  seqio.TaskRegistry.add(
    _name,
    source=seqio.FunctionDataSource(
      functools.partial(_dataset, _make), list(_ROWS), dict(_ROWS)
    ),
    preprocessors=[
      seqio.preprocessors.tokenize,
      seqio.preprocessors.append_eos,
    ],
    output_features=_FEATURES,
    metric_fns=[metrics.accuracy],
  )
