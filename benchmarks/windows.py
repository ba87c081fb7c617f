"""How much of the attention of R is near: the share within a window."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def share_within(logits: Array, window: int, causal: bool) -> float:
  """Returns the mean share of the weights of tokens at most so far away.

  Args:
    logits: [heads, length, memory_length].
    window: the largest distance that counts.
    causal: whether a token sees itself and those before it alone.
  """
  _, length, memory_length = logits.shape
  distance = np.arange(length)[:, None] - np.arange(memory_length)
  visible = (distance >= 0) | (not causal)
  logits = np.where(visible, logits.astype(np.float64), -np.inf)
  weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
  weights /= weights.sum(axis=-1, keepdims=True)
  near = np.abs(distance) <= window
  return float((weights * near).sum(axis=-1).mean())
