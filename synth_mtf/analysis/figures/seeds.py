"""The seeds of a model, as one line or point with a spread."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from synth_mtf.analysis.attention_file import Array


class Band(NamedTuple):
  """A curve over several seeds.

  Attributes:
    steps: that all of them have.
    mean: at these steps.
    spread: the standard deviation; 0 for a single seed.
  """

  steps: Array
  mean: Array
  spread: Array


def band(curves: Sequence[Mapping[float, float]]) -> Band:
  """Mean and spread of curves, each from step to value."""
  steps = sorted(set.intersection(*(set(curve) for curve in curves)))
  values = np.array([[curve[step] for step in steps] for curve in curves])
  return Band(np.array(steps), values.mean(0), spread(values))


def spread(values: Array) -> Array:
  """The standard deviation over the first axis, 0 of a single value."""
  if len(values) < 2:
    return np.zeros(values.shape[1:])
  return values.std(0, ddof=1)
