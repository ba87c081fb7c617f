"""Estimates standard errors of metrics over examples with the jackknife.

Many metrics (a correlation, F1, BLEU) are functions of all examples rather than
means over them. The delete-a-group jackknife only calls that function: it cuts
the examples into G contiguous blocks (the questions of one paragraph stay
together), computes the metric without each block, and estimates

    se^2 = (G - 1) / G  sum_g (metric_g - mean_g metric_g)^2

For a mean, this is the usual standard error (Tukey 1958; Efron and Stein 1981).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

GROUPS = 20
# A metric that takes longer for one block gets no standard error.
_MOST_SECONDS = 10.0

MetricFn = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]


def standard_errors(
  metric_fn: MetricFn, targets: Sequence[Any], predictions: Sequence[Any]
) -> dict[str, Optional[float]]:
  """Returns the standard error of each value that a metric function returns.

  An error is None if its value is undefined without one of the blocks. The dict
  is empty for a single example or a metric that is slow or fails on a subset.
  """
  n = len(targets)
  groups = min(GROUPS, n)
  if groups < 2:
    return {}
  edges = [n * group // groups for group in range(groups + 1)]
  values = []
  for begin, end in zip(edges, edges[1:]):
    begun = time.monotonic()
    try:
      found = metric_fn(
        [*targets[:begin], *targets[end:]],
        [*predictions[:begin], *predictions[end:]],
      )
      values.append({name: float(value) for name, value in found.items()})
    except Exception:  # a metric may require all examples
      return {}
    if time.monotonic() - begun > _MOST_SECONDS:
      return {}
  return {
    name: _jackknife([value[name] for value in values])
    for name in values[0]
    if all(name in value for value in values)
  }


def _jackknife(values: Sequence[float]) -> Optional[float]:
  if not all(map(math.isfinite, values)):
    return None
  mean = sum(values) / len(values)
  spread = sum((value - mean) ** 2 for value in values)
  return math.sqrt((len(values) - 1) / len(values) * spread)
