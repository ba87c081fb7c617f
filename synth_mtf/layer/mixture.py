"""Alpha, the weights of a mixture of synthesizers, from its variable."""

from typing import Any

import numpy as np
import numpy.typing as npt


def mixture_weights(
  scores: npt.NDArray[Any], count: int
) -> npt.NDArray[np.float64]:
  """Computes alpha_i of `count` functions from a value of the variable."""
  missing = np.zeros_like(scores[: count - len(scores)])
  scores = np.append(scores, missing, axis=0).astype(np.float64)
  e = np.exp(scores - scores.max(axis=0))
  return e / e.sum(axis=0)
