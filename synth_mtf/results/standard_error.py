"""Estimates standard errors of metrics over independent units.

A unit is an example. Examples with the same `group`, T5's key for a question of
MultiRC or ReCoRD, form one unit. Units are assumed to be independent. So are
the questions about one paragraph of SQuAD or MultiRC: their error is too small
if their answers tend to fail together. For MultiRC, the error by paragraph can
be 1.25 times as large; T5's targets name the question alone, and a metric sees
nothing else of an example.

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
  if unit(targets) == 'example':
    return [[index] for index in range(len(targets))]
  by_group: dict[Any, list[int]] = {}
  for index, target in enumerate(targets):
    by_group.setdefault(target['group'], []).append(index)
  return list(by_group.values())


def unit(targets: Sequence[Any]) -> str:
  """Returns what a unit is: an 'example' or a 'question'."""
  is_grouped = isinstance(targets[0], Mapping) and 'group' in targets[0]
  return 'question' if is_grouped else 'example'


def spread(
  metric_fn: MetricFn, targets: Sequence[Any], predictions: Sequence[Any]
) -> Spread:
  """Measures how the values that a metric function returns spread."""
  measured = _Measured(metric_fn, targets, predictions)
  n = len(measured.units)
  random = np.random.default_rng(0)
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)  # some metrics log their values
  try:
    start = time.monotonic()
    whole = measured.on(range(n))
    if time.monotonic() - start > _MOST_SECONDS:
      return Spread({})
    alone = _alone(measured, random)
    if alone:
      samples, scale = alone, math.sqrt(n)
    else:
      samples, scale = _bootstrap(measured, random), 1.0
  except Exception:  # a metric may require all examples
    return Spread({})
  finally:
    logging.set_verbosity(verbosity)
  errors: dict[str, float | None] = {}
  for name, value in whole.items():
    sampled = [sample[name] for sample in samples]
    defined = [value for value in sampled if math.isfinite(value)]
    errors[name] = None
    if math.isfinite(value) and len(defined) > 1:
      errors[name] = statistics.stdev(defined) / scale
  return Spread(errors, alone)


class _Measured:
  """A metric of predictions that can be computed on some of the units."""

  def __init__(
    self,
    metric_fn: MetricFn,
    targets: Sequence[Any],
    predictions: Sequence[Any],
  ) -> None:
    self._metric_fn = metric_fn
    self._targets = targets
    self._predictions = predictions
    self._is_grouped = unit(targets) == 'question'
    self.units = units(targets)

  def on(self, chosen: Iterable[int]) -> dict[str, float]:
    """Computes the metric; a unit that is chosen twice counts as two."""
    targets = []
    predictions = []
    for group, number in enumerate(chosen):
      for index in self.units[number]:
        target = self._targets[index]
        if self._is_grouped:
          target = {**target, 'group': group}
        targets.append(target)
        predictions.append(self._predictions[index])
    values = self._metric_fn(targets, predictions)
    return {name: float(value) for name, value in values.items()}


def _bootstrap(
  measured: _Measured, random: np.random.Generator
) -> list[dict[str, float]]:
  """Returns a metric's values on units drawn with replacement."""
  n = len(measured.units)
  return [measured.on(random.integers(n, size=n)) for _ in range(DRAWS)]


def _alone(
  measured: _Measured, random: np.random.Generator
) -> list[dict[str, float]]:
  """Returns the values of single units if a metric is their mean, else []."""
  n = len(measured.units)
  values: list[dict[str, float]] = []
  for size in (min(n, _PARTS), n):  # first, those of a few: it may be slow
    with contextlib.suppress(Exception):  # a correlation requires several
      values += [measured.on([number]) for number in range(len(values), size)]
    if len(values) < size:
      return []
    halves = [random.permutation(size)[: size // 2] for _ in range(_PARTS)]
    if size == 1:
      continue
    for part in (range(size), *halves):
      if not _is_mean(measured.on(part), [values[number] for number in part]):
        return []
  return values


def _is_mean(
  values: Mapping[str, float], alone: Sequence[Mapping[str, float]]
) -> bool:
  """Whether values on some units are the means of those on each alone."""
  return all(
    math.isclose(
      statistics.fmean(single[name] for single in alone), value, abs_tol=1e-9
    )
    for name, value in values.items()
  )
