"""Estimates standard errors of metrics over independent units.

A unit is an example. Examples with the same `group`, T5's key for a question of
MultiRC or ReCoRD, form one unit. Units are assumed to be independent. So are
the questions about one paragraph of SQuAD: their error is too small if their
answers tend to fail together.

A metric that is a mean over n units has the usual standard error,

    se^2 = sum_i (x_i - mean)^2 / (n (n - 1)),

which is p (1 - p) / (n - 1) for an accuracy p. That of any other metric (F1, a
correlation, BLEU, ROUGE) is its standard deviation over n units drawn with
replacement, the bootstrap (Efron 1979). The jackknife would need fewer values,
but fails where a model gives almost the same answer to all examples.
"""

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

DRAWS = 200  # gives standard errors to within about 5 %
_PARTS = 10  # random halves on which a metric must equal the mean of its units
# A metric that takes longer gets no standard error.
_MOST_SECONDS = 2.0

MetricFn = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]


class Spread(NamedTuple):
  """How a metric function's values spread over units.

  Attributes:
    errors: the standard error of each value; None for a single unit, or if the
      value is undefined. Draws in which it is undefined are left out. Empty for
      a metric that is slow or fails on a subset.
    alone: the values of each unit alone, if the metric is their mean.
  """

  errors: dict[str, float | None]
  alone: Sequence[Mapping[str, float]] = ()


def units(targets: Sequence[Any]) -> list[list[int]]:
  """Returns the indices of the examples of each unit."""
  found: dict[Any, list[int]] = {}
  for index, target in enumerate(targets):
    key = target['group'] if unit([target]) == 'question' else index
    found.setdefault(key, []).append(index)
  return list(found.values())


def unit(targets: Sequence[Any]) -> str:
  """Returns what a unit is: an 'example' or a 'question'."""
  is_grouped = isinstance(targets[0], Mapping) and 'group' in targets[0]
  return 'question' if is_grouped else 'example'


def spread(
  metric_fn: MetricFn, targets: Sequence[Any], predictions: Sequence[Any]
) -> Spread:
  """Measures how the values that a metric function returns spread."""
  every, is_grouped = units(targets), unit(targets) == 'question'
  n, random = len(every), np.random.default_rng(0)

  def measure(chosen: Iterable[int]) -> dict[str, float]:
    """Computes the metric on units; one drawn twice is two."""
    drawn = [(key, index) for key, u in enumerate(chosen) for index in every[u]]
    found = metric_fn(
      [
        {**targets[index], 'group': key} if is_grouped else targets[index]
        for key, index in drawn
      ],
      [predictions[index] for _, index in drawn],
    )
    return {name: float(value) for name, value in found.items()}

  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)  # some metrics log their values
  try:
    begun = time.monotonic()
    whole = measure(range(n))
    if time.monotonic() - begun > _MOST_SECONDS:
      return Spread({})
    alone = _alone(measure, n, random)
    found = alone or [measure(random.integers(n, size=n)) for _ in range(DRAWS)]
  except Exception:  # a metric may require all examples
    return Spread({})
  finally:
    logging.set_verbosity(verbosity)
  errors: dict[str, float | None] = {}
  for name, value in whole.items():
    values = [one[name] for one in found if math.isfinite(one[name])]
    is_known = math.isfinite(value) and len(values) > 1
    scale = math.sqrt(n) if alone else 1.0
    errors[name] = statistics.stdev(values) / scale if is_known else None
  return Spread(errors, alone)


def _alone(
  measure: Callable[[Iterable[int]], dict[str, float]], n: int, random: Any
) -> list[dict[str, float]]:
  """Returns the values of single units if a metric is their mean, else []."""
  found: list[dict[str, float]] = []
  for size in (min(n, _PARTS), n):  # first, those of a few: it may be slow
    with contextlib.suppress(Exception):  # a correlation requires several
      found += [measure([u]) for u in range(len(found), size)]
    if len(found) < size:
      return []
    halves = [random.permutation(size)[: size // 2] for _ in range(_PARTS)]
    for part in [range(size), *halves] if size > 1 else ():
      for name, value in measure(part).items():
        mean = statistics.fmean(found[u][name] for u in part)
        if not math.isclose(mean, value, abs_tol=1e-9):
          return []
  return found
