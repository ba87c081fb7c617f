"""Metrics of generated dialogue (the paper's Table 3), each from a package.

A metric whose package, program or file is missing is left out with a warning.
All are percentages.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from synth_mtf.errors import UserError
from synth_mtf.tasks import data_settings

Texts = Sequence[str]
MetricFn = Callable[[Texts, Texts], Mapping[str, float]]


class _Missing(Exception):
  """Something that a metric needs is missing; says how to get it."""


def _optional(metric: MetricFn) -> MetricFn:
  """Returns the metric, which gives {} where it cannot be computed."""

  @functools.wraps(metric)
  def wrapped(targets: Texts, predictions: Texts) -> Mapping[str, float]:
    try:
      return metric(targets, predictions)
    except ImportError as error:
      reason = (
        f'the package {error.name} is missing; pip install synth-mtf[metrics]'
      )
    except _Missing as error:
      reason = str(error)
    logging.warning('metric %s is left out: %s.', metric.__name__, reason)
    return {}

  return wrapped


@_optional
def bleu(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """BLEU-1 and BLEU-4 of the whole corpus, by pycocoevalcap."""
  from pycocoevalcap.bleu import bleu as package

  compute = functools.partial(package.Bleu(4).compute_score, verbose=0)
  scores = _coco_score(compute, targets, predictions)
  return {'bleu_1': 100.0 * scores[0], 'bleu_4': 100.0 * scores[3]}


@_optional
def rouge_l(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """ROUGE-L, by pycocoevalcap."""
  from pycocoevalcap.rouge import rouge as package

  score = _coco_score(package.Rouge().compute_score, targets, predictions)
  return {'rouge_l': 100.0 * score}


@_optional
def cider(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """CIDEr, by pycocoevalcap; above 100 is possible."""
  from pycocoevalcap.cider import cider as package

  score = _coco_score(package.Cider().compute_score, targets, predictions)
  return {'cider': 100.0 * score}


@_optional
def meteor(targets: Texts, predictions: Texts) -> Mapping[str, float]:
  """METEOR 1.5, by pycocoevalcap, which runs its authors' Java program."""
  from pycocoevalcap.meteor import meteor as package

  if not shutil.which('java'):
    raise _Missing('it runs a Java program, and there is no `java` on the path')
  scorer = package.Meteor()
  try:
    score = _coco_score(scorer.compute_score, targets, predictions)
  except (OSError, ValueError) as error:
    raise _Missing(f'its Java program failed ({error})') from error
  finally:
    scorer.meteor_p.kill()
    scorer.meteor_p.wait()
  return {'meteor': 100.0 * score}


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
    raise _Missing(
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
  return {
    'embedding_similarity': 100.0 * float(sum(similarities)) / len(similarities)
  }


METRICS = (bleu, rouge_l, meteor, cider, embedding_similarity)


def _coco_score(
  compute: Callable[..., tuple[Any, Any]], targets: Texts, predictions: Texts
) -> Any:
  lines = (
    {i: [' '.join(text.split())] for i, text in enumerate(texts)}
    for texts in (targets, predictions)
  )
  return compute(*lines)[0]


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
