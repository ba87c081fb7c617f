"""What the results of a run need to know about its model."""

from collections.abc import Sequence
from typing import NamedTuple


class ModelKind(NamedTuple):
  """A model's name, and what it shares with its published row.

  The label names the self-attention in the encoder's first block, such as
  "Syn (R+V)", "T5 (V)" or "LightConv", and what is not T5's, as in
  "T5, cross-attention R".
  """

  functions: str  # letters, as in "R+V"; T5 is "V"
  mixing: str  # 'alpha' if weights are learned, 'sum', or '' for one function
  size: str  # blocks, d_model and d_ff
  stack: str  # 'encoder-decoder', ..., and the classes that replace T5's
  heads: str  # heads x d_kv of self-attention, as in "8 x 128"
  positions: str  # 'learned', 'relative' (T5's bias) or 'others'
  label: str = ''


class Mixture(NamedTuple):
  """One of our layers, which may mix several functions."""

  scope: str  # of its variables
  stack: str  # 'encoder', 'decoder' or 'cross'
  layer: int  # in the stack, from 1
  letters: Sequence[str]  # of its functions
