"""Metrics of generated dialogue (the paper's Table 3), each from a package.

A metric whose package, program or file is missing is left out with a warning.
All are percentages.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings

Texts = Sequence[str]
MetricFn = Callable[[Texts, Texts], Mapping[str, float]]


def _optional(metric: MetricFn) -> MetricFn:
  """Returns the metric, which gives {} where it cannot be computed."""

  @functools.wraps(metric)
  def wrapped(targets: Texts, predictions: Texts) -> Mapping[str, float]:
    try:
      return metric(targets, predictions)
    except ImportError as error:
      reason: Any = (
        f'the package {error.name} is missing; pip install synth-mtf[metrics]'
      )
    except (OSError, ValueError) as error:
      reason = error
    logging.warning('metric %s is left out: %s.', metric.__name__, reason)
    return {}

  return wrapped


def _scorer(name: str) -> Any:
  """Returns a new scorer of pycocoevalcap, such as `Bleu`."""
  module = f'pycocoevalcap.{name.lower()}.{name.lower()}'
  return getattr(importlib.import_module(module), name)()


def _score(
  scorer: Any, targets: Texts, predictions: Texts, **kwargs: Any
) -> Any:
  lines = (
    {i: [' '.join(text.split())] for i, text in enumerate(texts)}
    for texts in (targets, predictions)
  )
  return 100 * np.array(scorer.compute_score(*lines, **kwargs)[0])


@_optional
def bleu(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """BLEU-1 and BLEU-4 of the whole corpus, by pycocoevalcap."""
  scores = _score(_scorer('Bleu'), targets, predictions, verbose=0)
  return {'bleu_1': float(scores[0]), 'bleu_4': float(scores[3])}


@_optional
def rouge_l(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """ROUGE-L, by pycocoevalcap."""
  return {'rouge_l': float(_score(_scorer('Rouge'), targets, predictions))}


@_optional
def cider(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """CIDEr, by pycocoevalcap; above 100 is possible."""
  return {'cider': float(_score(_scorer('Cider'), targets, predictions))}


@_optional
def meteor(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """METEOR 1.5, by pycocoevalcap, which runs its authors' Java program."""
  if not shutil.which('java'):
    raise OSError('it runs a Java program, and there is no `java` on the path')
  scorer = _scorer('Meteor')
  # An error leaves a plain lock locked, for which its __del__ would wait.
  scorer.lock = threading.RLock()
  return {'meteor': float(_score(scorer, targets, predictions))}


@_optional
def embedding_similarity(
  targets: Texts, predictions: Texts
) -> Mapping[str, float]:
  """Mean cosine of the average word vectors of target and prediction.

  By gensim, with the vectors that the setting `word_vectors` names. A text in
  which no word has a vector is similar to no other.
  """
  path = data_settings.settings().word_vectors
  if not path:
    raise ValueError(
      'it needs word vectors; set synth_mtf.tasks.settings.word_vectors '
      '(SYNTH_MTF_WORD_VECTORS, --word_vectors) to a word2vec or GloVe file'
    )
  vectors = _word_vectors(path)
  similarities = []
  for pair in zip(targets, predictions):
    words = [
      [word for word in text.split() if word in vectors] for text in pair
    ]
    similarities.append(vectors.n_similarity(*words) if all(words) else 0.0)
  return {'embedding_similarity': 100.0 * float(np.mean(similarities))}


METRICS = (bleu, rouge_l, meteor, cider, embedding_similarity)


@functools.lru_cache(maxsize=1)
def _word_vectors(path: str) -> Any:
  from gensim.models import KeyedVectors

  try:
    with open(path, 'rb') as stream:
      fields = stream.readline().split()
    # word2vec's text format starts with two counts, GloVe's with a word.
    return KeyedVectors.load_word2vec_format(
      path, binary=path.endswith('.bin'), no_header=len(fields) != 2
    )
  except (OSError, ValueError) as error:
    raise UserError(f'word_vectors {path!r} cannot be read: {error}') from error
