"""Parses the names of variables.

The scope of a layer is the name of its Python class, so the same weights have
different names in T5's, mesh_tensorflow's and our layers.
"""

import re
from collections.abc import Sequence

# The relative position biases of self-attention and cross-attention.
BIASES = ('relative_attention_bias', 'enc_dec_relative_attention_bias')
# Layer classes that use the same names for their variables.
_CLASSES = (
  ('SyntheticAttention', 'SelfAttention', 'Synthesizer'),
  ('SyntheticEncDecAttention', 'EncDecAttention'),
)
_ATTENTION = re.compile(f'(.*)/({"|".join(sum(_CLASSES, ()))})/(.+)')


def split(name: str) -> Sequence[str]:
  """Splits the name of a variable.

  The parts are its layer's place in the stack, the class of an attention layer
  (otherwise ''), and the name inside the layer (`q`, `random/R`).
  """
  match = _ATTENTION.match(name)
  return match.group(1, 2, 3) if match else (scope(name), '', name)


def candidates(name: str) -> list[str]:
  """Returns the names a variable may have in a checkpoint, best first."""
  place, layer, rest = split(name)
  classes = next((c for c in _CLASSES if layer in c), ())
  return list(dict.fromkeys([name, *(f'{place}/{c}/{rest}' for c in classes)]))


def is_weight(name: str) -> bool:
  """Whether a variable is neither the step nor an optimizer slot."""
  return name != 'global_step' and not slot_owner(name)


def slot_owner(slot: str) -> str:
  """Returns the weight of an optimizer slot, or '' for any other variable."""
  return (re.split('_slot_|/adam_|_momentum_', slot)[:-1] or [''])[0]


def scope(name: str) -> str:
  """Returns a variable's scope, including its synthesizing function's."""
  return name.rpartition('/')[0]
