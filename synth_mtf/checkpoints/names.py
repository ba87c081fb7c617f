"""Parses the names of variables, and finds the same weights under other names.

- The scope of a layer is the name of its Python class, so the same weights have
  different names in T5's, mesh_tensorflow's and our layers.
- The public T5 1.0 calls its norms `layer_norm` and `final_layer_norm`; since
  2020, they are `rms_norm`.
- gin may name a layer's place in its block (`self_attention`), which is called
  `layer_000` by default.
"""

import itertools
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

# The relative position biases of self-attention and cross-attention.
BIASES = ('relative_attention_bias', 'enc_dec_relative_attention_bias')
VALUE_BIAS = 'v_bias'
# Layer classes that use the same names for their variables.
_CLASSES = (
  ('SyntheticAttention', 'SelfAttention', 'Synthesizer'),
  ('SyntheticEncDecAttention', 'EncDecAttention'),
)
# What the weights of mesh_tensorflow's Synthesizer are in our layer.
OF_ORIGINAL = {'R': 'random/R', 'pi/kernel': 'dense/W2'}
_ANY_CLASS = '|'.join(itertools.chain.from_iterable(_CLASSES))
_ATTENTION = re.compile(f'(.*)/({_ANY_CLASS})/(.+)')
# The same formula: of each layer and stack; in T5 1.0 of a layer, of a stack.
_NORMS = ('rms_norm', 'layer_norm', 'final_layer_norm')
_NORM = re.compile(f'(.+)/({"|".join(_NORMS)})/scale')
_LAYER = re.compile(r'((.+?)/[^/]+)/([A-Z]\w*)/.+')  # place, block, class
_NUMBERED = re.compile(r'layer_\d+')
# Which of mesh_tensorflow's optimizers adds what to the name of a weight.
_OPTIMIZERS = {
  '_slot_': 'AdafactorOptimizer',
  '/adam_': 'AdamWeightDecayOptimizer',
  '_momentum_': 'MomentumOptimizer',
}
_SLOT = re.compile('|'.join(_OPTIMIZERS))


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


def corresponding(
  variables: Collection[str], stored: Collection[str]
) -> dict[str, str]:
  """Maps the variables of a model to their best names in a checkpoint.

  Variables that the checkpoint lacks are left out.
  """
  places = _named_places(variables, stored)
  best = {}
  for name in variables:
    layer = _LAYER.match(name) or _NORM.fullmatch(name)
    place = layer[1] if layer else scope(name)
    moved = places.get(place, place) + name.removeprefix(place)
    known = [option for option in _candidates(moved) if option in stored]
    if known:
      best[name] = known[0]
  return best


def _candidates(name: str) -> list[str]:
  """Returns the names a variable may have at its place, best first."""
  norm = _NORM.fullmatch(name)
  if norm:
    return [name, *(f'{norm[1]}/{other}/scale' for other in _NORMS)]
  place, layer, rest = split(name)
  options = [name]
  for classes in _CLASSES:
    if layer in classes:
      options += [f'{place}/{c}/{rest}' for c in classes if c != layer]
  return options


def _named_places(
  variables: Iterable[str], stored: Iterable[str]
) -> dict[str, str]:
  """Maps each layer's place to that of the same kind in a checkpoint's block.

  Only if one of the two is named: numbers tell the order of layers, and a model
  with another order is another model.
  """
  stored_places = _places(stored)
  places = {}
  for kind, place in _places(variables).items():
    other = stored_places.get(kind, place)
    ends = (place.rpartition('/')[2], other.rpartition('/')[2])
    if not all(map(_NUMBERED.fullmatch, ends)):
      places[place] = other
  return places


def _places(variables: Iterable[str]) -> dict[tuple[str, str], str]:
  """Returns the place of each kind of layer that a block has only once."""
  places: dict[tuple[str, str], set[str]] = {}
  for name in variables:
    match = _LAYER.match(name)
    if match:
      place, block, layer = match.groups()
      kinds = [classes[0] for classes in _CLASSES if layer in classes]
      kind = kinds[0] if kinds else layer
      places.setdefault((block, kind), set()).add(place)
  return {kind: place for kind, (place, *more) in places.items() if not more}


def is_weight(name: str) -> bool:
  """Whether a variable is neither the step nor an optimizer slot."""
  return name != 'global_step' and not slot_owner(name)


def slot_owner(name: str) -> str:
  """Returns the weight of an optimizer slot, or '' for any other variable."""
  match = _SLOT.search(name)
  return name[: match.start()] if match else ''


def optimizer_of(slot: str) -> str:
  """Returns the name of the optimizer that makes such a slot."""
  match = _SLOT.search(slot)
  assert match
  return _OPTIMIZERS[match.group()]


def scope(name: str) -> str:
  """Returns a variable's scope, including its synthesizing function's."""
  return name.rpartition('/')[0]
