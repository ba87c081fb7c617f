"""Mean and spread over the seeds of a model."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Band(NamedTuple):
  """A curve over several seeds.

  Attributes:
    steps: those that all seeds have.
    mean: at these steps.
    spread: standard deviation; 0 for a single seed.
  """

  steps: Array
  mean: Array
  spread: Array


def band(curves: Sequence[Mapping[float, float]]) -> Band:
  """Returns mean and spread of curves, each from step to value."""
  steps = sorted(set.intersection(*(set(curve) for curve in curves)))
  values = np.array([[curve[step] for step in steps] for curve in curves])
  return Band(np.array(steps), values.mean(0), spread(values))


def at_common_steps(
  curves: Sequence[Mapping[float, float]],
) -> list[dict[float, float]]:
  """Interpolates curves at the steps of the first, as far as all of them go.

  The host logs the loss about every hundred steps, but not at the same steps in
  each run.
  """
  begin, end = max(map(min, curves)), min(map(max, curves))
  steps = [step for step in sorted(curves[0]) if begin <= step <= end]
  return [
    dict(zip(steps, np.interp(steps, sorted(curve), _in_order(curve)).tolist()))
    for curve in curves
  ]


def _in_order(curve: Mapping[float, float]) -> list[float]:
  return [curve[step] for step in sorted(curve)]


def spread(values: Array) -> Array:
  """The standard deviation over the first axis; 0 for a single value."""
  if len(values) < 2:
    return np.zeros(values.shape[1:])
  return values.std(0, ddof=1)
