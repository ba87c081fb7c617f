"""Parses the names of variables.

The scope of a layer is the name of its Python class, so the same weights have
different names in T5's, mesh_tensorflow's and our layers.
"""

import itertools
import re
from typing import NamedTuple

# The relative position biases of self-attention and cross-attention.
BIASES = ('relative_attention_bias', 'enc_dec_relative_attention_bias')
# Layer classes that use the same names for their variables.
_CLASSES = (
  ('SyntheticAttention', 'SelfAttention', 'Synthesizer'),
  ('SyntheticEncDecAttention', 'EncDecAttention'),
)
_ANY_CLASS = '|'.join(itertools.chain.from_iterable(_CLASSES))
_ATTENTION = re.compile(f'(.*)/({_ANY_CLASS})/(.+)')
_SLOT = re.compile('_slot_|/adam_|_momentum_')


class Parts(NamedTuple):
  """The parts of a variable's name.

  Attributes:
    place: the layer's place in the stack (`decoder/block_000/layer_000`).
    layer: the class of an attention layer; '' for other layers.
    rest: the name inside an attention layer (`q`, `random/R`); the whole name
      for other layers.
  """

  place: str
  layer: str
  rest: str


def split(name: str) -> Parts:
  """Splits the name of a variable."""
  match = _ATTENTION.match(name)
  if match:
    return Parts(*match.groups())
  return Parts(scope(name), '', name)


def candidates(name: str) -> list[str]:
  """Returns the names a variable may have in a checkpoint, best first."""
  place, layer, rest = split(name)
  options = [name]
  for classes in _CLASSES:
    if layer in classes:
      options += [f'{place}/{c}/{rest}' for c in classes if c != layer]
  return options


def is_weight(name: str) -> bool:
  """Whether a variable is neither the step nor an optimizer slot."""
  return name != 'global_step' and not slot_owner(name)


def slot_owner(name: str) -> str:
  """Returns the weight of an optimizer slot, or '' for any other variable."""
  match = _SLOT.search(name)
  return name[: match.start()] if match else ''


def scope(name: str) -> str:
  """Returns a variable's scope, including its synthesizing function's."""
  return name.rpartition('/')[0]
