"""Estimates standard errors of metrics over independent units.

A unit is an example. Examples of one `group`, T5's key for the answers to one
question of MultiRC and ReCoRD, are one unit. Units count as independent; so do
the questions on one paragraph of SQuAD, whose errors are too small if answers
to them go wrong together.

A metric that is a mean over n units has the usual standard error,

    se^2 = sum_i (x_i - mean)^2 / (n (n - 1)),

which is p (1 - p) / (n - 1) for an accuracy p. For any other metric (F1, a
correlation, BLEU, ROUGE), the delete-a-group jackknife deals the units into G
blocks, computes the metric without each block, and estimates

    se^2 = (G - 1) / G  sum_g (metric_g - mean_g metric_g)^2.

With one unit a block, this is the first formula for a mean, so that only more
than G units need to be told apart (Tukey 1958; Efron and Stein 1981).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from absl import logging

GROUPS = 100
# A metric that takes longer for one block gets no standard error.
_MOST_SECONDS = 4.0

MetricFn = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]


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


def standard_errors(
  metric_fn: MetricFn, targets: Sequence[Any], predictions: Sequence[Any]
) -> dict[str, Optional[float]]:
  """Returns the standard error of each value that a metric function returns.

  An error is None if its value is undefined without one of the blocks. The dict
  is empty for a single unit or a metric that is slow or fails on a subset.
  """

  def measure(chosen: Sequence[Sequence[int]]) -> dict[str, float]:
    indices = [index for unit in chosen for index in unit]
    found = metric_fn(
      [targets[index] for index in indices],
      [predictions[index] for index in indices],
    )
    return {name: float(value) for name, value in found.items()}

  every = units(targets)
  n, blocks = len(every), min(GROUPS, len(every))
  if blocks < 2:
    return {}
  found = {}
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)  # some metrics log their values
  try:
    begun = time.monotonic()
    whole = measure(every)
    if time.monotonic() - begun > _MOST_SECONDS:
      return {}
    rests = [
      [unit for index, unit in enumerate(every) if index % blocks != block]
      for block in range(blocks)
    ]
    without = [measure(rest) for rest in rests]
    for name, value in whole.items():
      values = [one[name] for one in without]
      total = sum(len(rest) * one for rest, one in zip(rests, values))
      if n > blocks and math.isclose(total, (blocks - 1) * n * value):
        # It is a mean: the jackknife that leaves out one unit is the formula.
        alone = (measure([unit])[name] for unit in every)
        values = [(n * value - one) / (n - 1) for one in alone]
      found[name] = _jackknife(values)
  except Exception:  # a metric may require all examples
    return {}
  finally:
    logging.set_verbosity(verbosity)
  return found


def _jackknife(values: Sequence[float]) -> Optional[float]:
  if not all(map(math.isfinite, values)):
    return None
  mean = sum(values) / len(values)
  spread = sum((value - mean) ** 2 for value in values)
  return math.sqrt((len(values) - 1) / len(values) * spread)
