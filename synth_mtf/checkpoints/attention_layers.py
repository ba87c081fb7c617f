"""Reads a checkpoint's attention layers, of any class, as layers of ours."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import files, names
from synth_mtf.errors import UserError
from synth_mtf.host.model import ConfiguredModel
from synth_mtf.layer.mixture import mixture_weights
from synth_mtf.layer.synthetic import SyntheticLayer, scopes
from synth_mtf.synthesizers.base import (
  SynthesizingFunction,
  description_of,
  function_of,
  scope_of,
)
from synth_mtf.synthesizers.dot_product import DotProduct

VANILLA = scope_of(DotProduct)

Array = npt.NDArray[Any]


class Weight(NamedTuple):
  """A value, and its name in the source checkpoint if it comes from there."""

  value: Array
  origin: str = ''


@dataclasses.dataclass
class Layer:
  """An attention layer, with the settings and variable names of our layers."""

  # The settings that affect each function's result but no variable's shape, by
  # scope, in order; None if unknown.
  functions: Mapping[str, Any]
  normalize: str | None = 'softmax'
  index_by: str = 'position'
  weights: dict[str, Weight] = dataclasses.field(default_factory=dict)

  def shares(self) -> dict[str, Array]:
    """The weight alpha_i of each function, [heads] or []."""
    if 'alpha' not in self.weights:
      return dict.fromkeys(self.functions, np.ones([]))
    alpha = self.weights['alpha'].value
    shares = mixture_weights(alpha, len(self.functions))
    return dict(zip(self.functions, shares, strict=True))

  def separate_weights(self, shapes: Mapping[str, list[int]]) -> None:
    """Renames or copies weights that the target has under other names.

    Args:
      shapes: those of the target's variables, by their name in the layer.
    """
    if VANILLA not in self.functions:
      self._rename_values(shapes)
    self._unshare_dense(shapes)

  def _rename_values(self, shapes: Mapping[str, list[int]]) -> None:
    """Without keys, a shared key-value projection only projects values."""
    old, new = ('v', 'kv') if 'kv' in shapes else ('kv', 'v')
    if old in self.weights:
      self.weights[new] = self.weights.pop(old)

  def _unshare_dense(self, shapes: Mapping[str, list[int]]) -> None:
    """Copies what a Dense shares, if the shapes have places for the copies."""
    weights = self.weights
    if 'dense/W1' not in shapes or not _shares_query(weights):
      return
    query = weights['q']
    if query.value.size == math.prod(shapes['dense/W1']):
      w1 = query.value.reshape(shapes['dense/W1'])
      weights['dense/W1'] = Weight(w1, query.origin)
    w2, w2_shape = weights['dense/W2'], shapes['dense/W2']
    if w2.value.ndim < len(w2_shape):  # all heads share it
      heads = w2_shape[0]
      per_head = np.broadcast_to(w2.value, [heads, *w2.value.shape])
      weights['dense/W2'] = Weight(per_head, w2.origin)
    if VANILLA not in _functions(weights.keys() - {'dense/W1'}):
      del weights['q']


def read(
  checkpoint: files.Checkpoint, stored: str, source: ConfiguredModel | None
) -> Layer:
  """Reads the layer in a scope of the checkpoint.

  `source` is the model of the checkpoint, if known.
  """
  weights = {
    name.removeprefix(f'{stored}/'): Weight(checkpoint[name], name)
    for name in checkpoint.weights
    if name.startswith(f'{stored}/')
  }
  if stored.endswith('/EncDecAttention'):
    weights.pop(names.BIASES[0], None)  # unused variable of early T5
  if stored.endswith('/Synthesizer'):
    return _from_original(stored, weights)
  if source and stored in source.attention:
    layer = configured(stored, source.attention[stored])
  elif 'alpha' in weights:
    raise UserError(
      f'{stored} is a mixture, whose order is not in the checkpoint: give its '
      'gin files as --source_gin_file (its operative_config.gin will do)'
    )
  else:
    layer = Layer(dict.fromkeys(_functions(weights)))
  layer.weights = weights
  if 'alpha' in weights:
    count = len(layer.functions)
    rows = len(weights['alpha'].value)
    if rows not in (count, count - 1):
      raise other_size(f'{stored}/alpha', rows, count)
  return layer


def configured(scope: str, layer: transformer_layers.SelfAttention) -> Layer:
  """Returns a model's layer, without its weights."""
  if isinstance(layer, SyntheticLayer):
    functions = {}
    function_scopes = scopes(layer.synthesizers)
    for name, function in zip(function_scopes, layer.synthesizers, strict=True):
      functions[name] = _settings(function)
    return Layer(functions, layer.normalize, layer.index_by)
  if type(layer).__name__ in ('SelfAttention', 'EncDecAttention'):
    return Layer({VANILLA: _settings(DotProduct())})
  raise UserError(
    f"{scope}: {type(layer).__name__} cannot be converted; expected T5's own "
    'attention, SyntheticAttention or SyntheticEncDecAttention'
  )


def owner(name: str) -> tuple[str, type[SynthesizingFunction] | None]:
  """Returns the scope of a variable's function, and the class that declares it.

  If scopes are nested, the innermost one determines the class.
  """
  if name in DotProduct.layer_variables:
    return VANILLA, DotProduct
  scope, _, inner = names.scope(name).partition('/')
  innermost = (inner or scope).rpartition('/')[-1]
  return scope, function_of(innermost)


def last_factors(variables: Collection[str]) -> dict[str, str]:
  """Returns the variables that scale logits, with the function of each."""
  factors = {}
  for name in variables:
    function, function_class = owner(name)
    leaf = name.rpartition('/')[-1]
    if function_class and leaf in function_class.last_factors:
      factors[name] = function
  if _shares_query(variables):  # q would scale D, too
    factors.pop('q', None)
    if 'k' in variables:
      factors['k'] = VANILLA
  return factors


def other_size(name: str, stored: Any, expected: Any) -> UserError:
  """Returns the error for a checkpoint of a model of another size."""
  return UserError(
    f'{name} is {stored} in the checkpoint and {expected} in the model: they '
    "are of different sizes. Give the gin file of the checkpoint's size, and "
    'for FactorizedDense its max_length and factors.'
  )


def _from_original(scope: str, weights: dict[str, Weight]) -> Layer:
  """Renames the variables of mesh_tensorflow's own Synthesizer.

  Its R is [length, heads, memory_length]. Its alpha, a sigmoid, weights the
  synthesized logits, which therefore come first.
  """
  if 'R1' in weights:
    raise UserError(
      f'{scope}: mode "factorized" gives all queries the same logits and has '
      'no counterpart here'
    )
  if 'alpha' in weights and weights['alpha'].value.shape != (1,):
    raise other_size(f'{scope}/alpha', [*weights['alpha'].value.shape], [1])
  if 'R' in weights:
    table, origin = weights['R']
    heads_first = table.swapaxes(0, 1) if table.ndim > 1 else table
    weights['R'] = Weight(heads_first, origin)
  for name, ours in names.OF_ORIGINAL.items():
    if name in weights:
      weights[ours] = weights.pop(name)
  functions = sorted(_functions(weights), key=lambda name: name == VANILLA)
  return Layer(dict.fromkeys(functions), index_by='row', weights=weights)


def _settings(function: SynthesizingFunction) -> tuple[str, tuple[str, ...]]:
  return description_of(function), function.last_factors


def _shares_query(variables: Collection[str]) -> bool:
  """Whether the queries are the hidden layer of a Dense."""
  return 'dense/W2' in variables and 'dense/W1' not in variables


def _functions(variables: Collection[str]) -> list[str]:
  """Returns the functions that have these variables."""
  functions = dict.fromkeys(owner(name)[0] for name in variables)
  if _shares_query(variables) and 'k' not in variables:
    functions.pop(VANILLA, None)
  return [name for name in functions if name]
