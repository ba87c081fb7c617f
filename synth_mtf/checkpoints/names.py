"""What the names of variables say.

The scope of a layer is the name of its Python class, so that the same weights
have different names in T5's, in mesh_tensorflow's and in our layer.
"""

import itertools
import re
from typing import NamedTuple, Optional

from synth_mtf.synthesizers.dot_product import DotProduct

# The relative position bias of self-attention and of cross-attention.
BIASES = ('relative_attention_bias', 'enc_dec_relative_attention_bias')
_SELF, _CROSS = 'self-attention', 'cross-attention'
# The classes of layers that share their variables' names.
ATTENTION_CLASSES = {
  _SELF: ('SyntheticAttention', 'SelfAttention', 'Synthesizer'),
  _CROSS: ('SyntheticEncDecAttention', 'EncDecAttention'),
}
_ATTENTION = re.compile(
  r'^(.*/)({})/(.+)$'.format(
    '|'.join(itertools.chain(*ATTENTION_CLASSES.values()))
  )
)
_NOT_A_WEIGHT = re.compile(r'(^|/)global_step$|_slot_\w+$')
_SLOT = '_slot_'


class AttentionName(NamedTuple):
  """The name of an attention layer's variable, split."""

  scope: str  # the layer's place in the stack, with the trailing '/'
  layer: str  # its class
  rest: str  # the name inside the layer (`q`, `random/R`)


def attention_name(name: str) -> Optional[AttentionName]:
  """Splits the name of an attention layer's variable; None for any other."""
  match = _ATTENTION.match(name)
  return AttentionName(*match.groups()) if match else None


def attention_kind(layer: str) -> str:
  """The key in `ATTENTION_CLASSES` of a layer's class.

  Classes that are not there count as self-attention.
  """
  return _CROSS if layer in ATTENTION_CLASSES[_CROSS] else _SELF


def candidates(name: str) -> list[str]:
  """The names under which a checkpoint may hold a variable, best first."""
  parts = attention_name(name)
  if not parts:
    return [name]
  classes = ATTENTION_CLASSES[attention_kind(parts.layer)]
  others = [f'{parts.scope}{c}/{parts.rest}' for c in classes]
  return [name, *(other for other in others if other != name)]


def is_used(layer: str, rest: str) -> bool:
  """Whether a layer of that class uses a variable.

  Early T5 checkpoints have a bias of self-attention in EncDecAttention.
  """
  return layer != 'EncDecAttention' or rest != BIASES[0]


def is_weight(name: str) -> bool:
  """Whether a variable is neither the step nor an optimizer slot."""
  return not _NOT_A_WEIGHT.search(name)


def is_slot(name: str) -> bool:
  """Whether a variable is an optimizer slot."""
  return _SLOT in name


def slot_owner(name: str) -> str:
  """The weight that a slot belongs to."""
  return name.rsplit(_SLOT, 1)[0]


def is_embedding(name: str) -> bool:
  """Whether a variable has a row for each piece of the vocabulary."""
  return name.endswith('/embedding') and 'position' not in name


def scope(name: str) -> str:
  """The scope of a variable, including that of a synthesizing function."""
  return name.rpartition('/')[0]


def layer(name: str) -> str:
  """The place in the stack of a variable's layer, whatever its class."""
  parts = attention_name(name)
  return parts.scope if parts else scope(name)


def may_start_anew(rest: str) -> bool:
  """Whether a variable inside an attention layer may lack a trained value."""
  return '/' in rest or rest in ('alpha', *BIASES, *DotProduct.layer_variables)
