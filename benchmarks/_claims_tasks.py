"""Made-up tasks of one kind of dependence each, for benchmarks/claims.py.

  claims_copy     kqzh -> kqzh: a target token depends on a position
  claims_reverse  kqzh -> hzqk: the same, from the other end
  claims_pairs    kqzh? z -> y: it depends on two tokens being alike

A symbol is a byte. All rows of a task are of one length, so that where a symbol
stands says nothing of which one it is.
"""

import functools
import string
from collections.abc import Callable, Iterator

import numpy as np
import seqio
import tensorflow.compat.v2 as tf
from t5.evaluation import metrics

LENGTH = 16  # symbols of a row
_SYMBOLS = np.array(list(string.ascii_letters + string.digits))
_ROWS = {'train': 100_000, 'validation': 1_024}
_SEEDS = {'train': 1, 'validation': 2}
_FEATURES = {
  name: seqio.Feature(seqio.ByteVocabulary(), add_eos=True)
  for name in ('inputs', 'targets')
}
_Row = tuple[str, str]  # inputs and targets


def _copied(rng: np.random.Generator) -> _Row:
  text = ''.join(rng.choice(_SYMBOLS, LENGTH))
  return text, text


def _reversed(rng: np.random.Generator) -> _Row:
  text = ''.join(rng.choice(_SYMBOLS, LENGTH))
  return text, text[::-1]


def _paired(rng: np.random.Generator) -> _Row:
  """Half of the rows ask for a symbol that is there."""
  chosen = rng.choice(_SYMBOLS, LENGTH + 1, replace=False)
  there = bool(rng.integers(2))
  asked = rng.choice(chosen[:LENGTH]) if there else chosen[LENGTH]
  return f'{"".join(chosen[:LENGTH])}?{asked}', 'y' if there else 'n'


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
  shuffle_files: bool,
  seed: object = None,
) -> tf.data.Dataset:
  del shuffle_files, seed  # rows are drawn independently as it is
  text = tf.TensorSpec([], tf.string)
  return tf.data.Dataset.from_generator(
    functools.partial(_rows, make, split),
    output_signature={'inputs': text, 'targets': text},
  )


for _name, _make in {
  'claims_copy': _copied,
  'claims_reverse': _reversed,
  'claims_pairs': _paired,
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
