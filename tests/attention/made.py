"""Attention made up for tests."""

from collections.abc import Iterable
from typing import Optional

import numpy as np

from synth_mtf.attention.file import SIDES, Array, Attention, Stack

TOKENS = {
  'encoder': ['▁The', '▁red', '▁$5', '</s>'],
  'decoder': ['<s>', '▁das', '▁rote'],
}


def attention(
  label: str = 'Syn (R)',
  step: int = 100,
  layers: int = 6,
  weights: Optional[Array] = None,
  stacks: Iterable[str] = SIDES,
) -> Attention:
  """Returns attention of one text, whose default weights are even."""
  made = {}
  for name in stacks:
    n, m = (len(TOKENS[side]) for side in SIDES[name])
    even = np.ones([layers, 1, 3, n, m])
    if name == 'decoder':
      even = np.tril(even)
    even /= even.sum(-1, keepdims=True)
    made[name] = Stack(even if weights is None else weights, even - 0.3)
  return Attention(
    'runs/x',
    label,
    step,
    made,
    {side: np.array([tokens]) for side, tokens in TOKENS.items()},
    {side: np.array(['text']) for side in TOKENS},
  )
