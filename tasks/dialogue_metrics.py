"""Metrics for generated dialogue (the paper's Table 3).

Each comes from an external package and is skipped, with a warning, if the
package, a program or a file is missing. All values are percentages.
"""

import contextlib
import functools
import importlib
import io
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from synth_mtf.tasks import data_settings

Texts = Sequence[str]
MetricFn = Callable[[Texts, Texts], Mapping[str, float]]


def _optional(metric: MetricFn) -> MetricFn:
  """Wraps a metric to warn and return {} if it cannot be computed."""

  @functools.wraps(metric)
  def wrapped(targets: Texts, predictions: Texts) -> Mapping[str, float]:
    try:
      return metric(targets, predictions)
    except ImportError as error:
      reason = (
        f'the package {error.name} is missing: '
        "pip install -c constraints.txt '.[metrics]'"
      )
    except (OSError, ValueError) as error:
      reason = str(error)
    logging.warning('metric %s is left out: %s.', metric.__name__, reason)
    return {}

  return wrapped


def _coco(name: str, scorer: str, **scores: int) -> MetricFn:
  """Wraps a pycocoevalcap scorer; `scores` maps metric names to indices."""

  def metric(targets: Texts, predictions: Texts) -> Mapping[str, float]:
    module = importlib.import_module(
      f'pycocoevalcap.{scorer.lower()}.{scorer.lower()}'
    )
    if scorer == 'Meteor' and not shutil.which('java'):
      raise OSError(
        'it runs a Java program, and there is no `java` on the path'
      )
    instance = getattr(module, scorer)()
    # After an error, Meteor still holds its lock, and its __del__ would wait.
    instance.lock = threading.RLock()
    texts = _numbered(targets), _numbered(predictions)
    with contextlib.redirect_stdout(io.StringIO()):
      scores_of_corpus, _ = instance.compute_score(*texts)
    values = np.ravel(scores_of_corpus)
    return {key: 100 * float(values[i]) for key, i in scores.items()}

  metric.__name__ = name
  metric.__qualname__ = name
  return _optional(metric)


def _numbered(texts: Texts) -> dict[int, list[str]]:
  """Returns texts as pycocoevalcap takes them, each on one line."""
  return {i: [' '.join(text.split())] for i, text in enumerate(texts)}


bleu = _coco('bleu', 'Bleu', bleu_1=0, bleu_4=3)
rouge_l = _coco('rouge_l', 'Rouge', rouge_l=0)
meteor = _coco('meteor', 'Meteor', meteor=0)  # version 1.5, in Java
cider = _coco('cider', 'Cider', cider=0)  # can exceed 100


@_optional
def embedding_similarity(
  targets: Texts, predictions: Texts
) -> Mapping[str, float]:
  """Mean cosine similarity of average word vectors, computed by gensim.

  The setting `word_vectors` names the vectors. A pair scores 0 if no word of
  the target, or no word of the prediction, has a vector.
  """
  path = data_settings.settings().word_vectors
  if not path:
    raise ValueError(
      f'it needs word vectors; set {data_settings.name_of("word_vectors")} to '
      'a word2vec or GloVe file'
    )
  vectors = _word_vectors(path)
  similarities = []
  for target, prediction in zip(targets, predictions, strict=True):
    target_words = [word for word in target.split() if word in vectors]
    predicted_words = [word for word in prediction.split() if word in vectors]
    similarity = 0.0
    if target_words and predicted_words:
      similarity = vectors.n_similarity(target_words, predicted_words)
    similarities.append(similarity)
  return {'embedding_similarity': 100.0 * float(np.mean(similarities))}


METRICS = (bleu, rouge_l, meteor, cider, embedding_similarity)


@functools.lru_cache(maxsize=1)
def _word_vectors(path: str) -> Any:
  import smart_open  # gensim's own, which also reads .gz
  from gensim.models import KeyedVectors

  with smart_open.open(path, 'rb') as stream:
    first_line = stream.readline().split()
  # word2vec's text format starts with two counts, GloVe's with a word.
  return KeyedVectors.load_word2vec_format(
    path,
    binary=path.removesuffix('.gz').endswith('.bin'),
    no_header=len(first_line) != 2,
  )
