"""How much of attention is near: the share within a window."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def share_within(weights: Array, window: int) -> float:
  """Returns the mean share of the weights of tokens at most so far away.

  Args:
    weights: [..., queries, memory]; those of a query sum to 1.
    window: the largest distance that counts.
  """
  *_, queries, memory = weights.shape
  distance = np.abs(np.arange(queries)[:, None] - np.arange(memory))
  near = weights * (distance <= window)
  return float(near.sum(axis=-1, dtype=np.float64).mean())
