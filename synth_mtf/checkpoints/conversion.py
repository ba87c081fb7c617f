"""Converts a checkpoint to another variant.

Each attention layer, whatever its class, is read as if it were one of ours. The
target's layer is filled from it:

- A function in both models keeps its variables. If its alpha changes, its last
  factors are multiplied by the ratio, so that alpha_i S_i(X) stays the same. A
  Dense that shares weights (with the queries, among heads) may become one that
  does not, but not the reverse.
- A function only in the target starts at S(X) = 0 if the target has all
  functions of the source, which preserves the model's output. Otherwise, it
  starts from its usual initial values.
- A function only in the source is dropped. Unless a new function replaces it,
  it must not have contributed to the logits.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import comparison, files, identity, names
from synth_mtf.errors import UserError
from synth_mtf.host.model import ConfiguredModel
from synth_mtf.layer.synthetic import SyntheticLayer, mixture_weights, scopes
from synth_mtf.synthesizers.base import (
  SynthesizingFunction,
  described,
  function_of,
  scope_of,
)
from synth_mtf.synthesizers.dot_product import DotProduct

VANILLA = scope_of(DotProduct)

# Alphas, and differences between alphas, below this value are ignored.
_NEGLIGIBLE = 1e-6

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
    return dict(
      zip(
        self.functions, mixture_weights(alpha, len(self.functions)), strict=True
      )
    )


class Conversion:
  """A checkpoint converted for another model.

  Attributes:
    values: contents of the converted checkpoint. Unchanged weights keep their
      optimizer slots.
    report: where each variable comes from.
    exact: whether the target computes the same function as the source.
    reread: whether that holds only for unpacked rows, since the two models
      index tables differently in packed rows (`SyntheticAttention.index_by`).
    rounding: the largest difference that the target's type makes to a value,
      and the name of its variable.
  """

  def __init__(
    self,
    checkpoint: files.Checkpoint,
    source: ConfiguredModel | None,
    target: ConfiguredModel,
    resize: bool = False,
  ) -> None:
    """Converts a checkpoint, or raises a UserError if that is impossible.

    `source` is needed only if it has mixtures, since a checkpoint does not
    store the order of their functions. `resize` grows or shrinks tables to the
    target's max_length.
    """
    if any('ensemble' in s.dimension_names for s in target.shapes.values()):
      raise UserError(
        'ensembles cannot be converted: convert each member on its own '
        '(Unitransformer.ensemble = None)'
      )
    self._target = target
    self._resize = resize
    self.exact = True
    self.reread = False
    self.rounding = (0.0, '')
    attention = tuple(scope + '/' for scope in target.attention)
    weights = {
      name: Weight(self._fitted(name, checkpoint[name]), name)
      for name in target.variables
      if name in checkpoint and not name.startswith(attention)
    }
    for scope in target.attention:
      weights |= self._filled(scope, _read(checkpoint, scope, source))
    self.report = comparison.Comparison(
      comparison.kinds_of(target.variables.values()),
      checkpoint,
      {name: w.origin for name, w in weights.items() if w.origin},
    )
    self.report.require_weights()
    if source:
      here, there = _unshaped(target), _unshaped(source)
      self.exact &= all(there.get(p, one) == one for p, one in here.items())
    self.exact &= all(names.split(name)[1] for name in self.report.left_over)
    self.values: dict[str, Array] = {
      'global_step': np.asarray(checkpoint.step, np.int64)
    }
    for name, (value, origin) in weights.items():
      dtype = target.variables[name].dtype.base_dtype.as_numpy_dtype
      self.values[name] = rounded = value.astype(dtype)
      if dtype != value.dtype:
        errors = np.abs(rounded.astype(np.float32) - value.astype(np.float32))
        self.rounding = max(self.rounding, (float(errors.max(initial=0)), name))
      slots = [s for s in checkpoint.slots if names.slot_owner(s) == origin]
      if slots and np.array_equal(value, checkpoint[origin]):
        for slot in slots:
          self.values[name + slot[len(origin) :]] = checkpoint[slot]

  def _filled(self, scope: str, source: Layer) -> dict[str, Weight]:
    """Returns the weights of one of the target's attention layers, by name."""
    layer = self._target.attention[scope]
    target = _settings(scope, layer)
    shapes = {
      name[len(scope) + 1 :]: variable.shape.as_list()
      for name, variable in self._target.variables.items()
      if name.startswith(scope + '/')
    }
    if VANILLA not in source.functions:
      # Without keys, a shared key-value projection only projects values.
      old, new = ('v', 'kv') if 'kv' in shapes else ('kv', 'v')
      if old in source.weights:
        source.weights[new] = source.weights.pop(old)
    _unshare_dense(source.weights, shapes)
    before = source.shares()
    heads = max((share.size for share in before.values()), default=1)
    if heads not in (1, layer.num_heads):
      raise _other_size(f'{scope}: the number of heads', heads, layer.num_heads)
    if 'alpha' in shapes:
      shape = shapes.pop('alpha')
      kept = source.weights.get('alpha', Weight(np.zeros(0)))
      if [*kept.value.shape] != shape or [*before] != [*target.functions]:
        kept = Weight(np.zeros(shape))
      target.weights['alpha'] = kept
    after = target.shares()
    there = _last_factors(source.weights)
    active = {there[r] for r in there if source.weights[r].value.any()}
    lost = [
      f
      for f in source.functions
      if f not in target.functions
      and np.max(before[f]) >= _NEGLIGIBLE
      and (f in active or f not in there.values())
    ]
    if lost and set(target.functions) <= set(source.functions):
      raise UserError(
        f'{scope}: {", ".join(lost)} contributes to the logits (alpha up to '
        f'{max(np.max(before[f]) for f in lost):.3g}) and the target has no '
        'place for it. Train until alpha has settled on what is to remain, or '
        'convert to a variant that has it.'
      )
    factors = _last_factors(shapes)
    missing = [f'{scope}/{r}' for r in shapes if r not in source.weights]
    initial = self._target.initial_values(missing)
    for rest in shapes:
      name, function = f'{scope}/{rest}', factors.get(rest, '')
      if rest not in source.weights:
        value = initial[name]
        if not lost and (function or rest in names.BIASES):
          value = np.zeros_like(value)
        target.weights[rest] = Weight(value)
        continue
      value, origin = source.weights[rest]
      value = self._fitted(name, value)
      if function in before:
        ratio = before[function] / after[function]
        if np.ptp(ratio) <= _NEGLIGIBLE:
          ratio = np.ravel(ratio)[:1]
        if ratio.size == 1 or 'heads' in str(self._target.shapes[name]):
          value = _scaled(rest, value, ratio)
        else:  # heads whose alphas differ share it
          self.exact = False
      target.weights[rest] = Weight(value, origin)
    common = source.functions.keys() & target.functions.keys()
    if common - {VANILLA}:
      self.reread |= source.index_by != target.index_by
    self.exact &= (
      not lost
      and source.normalize == target.normalize
      and all(
        source.functions[f] in (None, target.functions[f]) for f in common
      )
      and all(b in shapes for b in names.BIASES if b in source.weights)
      # Such as a bias that the target's function does not have.
      and not any(
        weight.value.any() and rest not in shapes and _owner(rest)[0] in common
        for rest, weight in source.weights.items()
      )
      # A function without a last factor cannot compensate for a changed alpha.
      and all(
        np.max(np.abs(before.get(f, 0.0) - after[f])) <= _NEGLIGIBLE
        for f in target.functions
        if f not in factors.values()
      )
    )
    return {f'{scope}/{rest}': w for rest, w in target.weights.items()}

  def _fitted(self, name: str, value: Array) -> Array:
    """Fits a value to its variable's shape; only positions may be resized."""
    there = list(value.shape)
    here = self._target.variables[name].shape.as_list()
    if there == here:
      return value
    changed = [
      i for i, (a, b) in enumerate(zip(there, here, strict=False)) if a != b
    ]
    function, leaf = _owner(name)[1], name.rpartition('/')[-1]
    positions = function.position_axes.get(leaf, ()) if function else ()
    if len(there) != len(here) or not {*changed} <= {
      axis % len(here) for axis in positions
    }:
      raise _other_size(name, there, here)
    if not self._resize:
      raise UserError(
        f'{name} is for max_length {there[changed[0]]} in the checkpoint and '
        f'{here[changed[0]]} in the model. With --resize, the table keeps the '
        'positions that both have, and new ones get initial values.'
      )
    common = tuple(map(slice, np.minimum(there, here)))
    resized = self._target.initial_values([name])[name].copy()
    resized[common] = value[common]
    return resized


def _unshaped(model: ConfiguredModel) -> dict[str, dict[str, Any]]:
  """Returns the settings of T5's layers that no shape shows, by place."""
  settings = ('activation', 'fold_scaling_into_initializer')
  return {
    names.scope(scope): {name: found.get(name) for name in settings}
    for scope, found in identity.describe(model.transformer).items()
  }


def _read(
  checkpoint: files.Checkpoint, scope: str, source: ConfiguredModel | None
) -> Layer:
  """Reads the checkpoint's layer that corresponds to one of the target's."""
  outputs = [c for c in names.candidates(f'{scope}/o') if c in checkpoint]
  if not outputs:
    raise UserError(
      f'the checkpoint {checkpoint.path} has no attention layer like {scope}: '
      'it was made by a model of another size'
    )
  here = names.scope(outputs[0])
  weights = {
    name[len(here) + 1 :]: Weight(checkpoint[name], name)
    for name in checkpoint.weights
    if name.startswith(here + '/')
  }
  if here.endswith('/EncDecAttention'):
    weights.pop(names.BIASES[0], None)  # unused variable of early T5
  if here.endswith('/Synthesizer'):
    return _from_original(here, weights)
  if source and here in source.attention:
    found = _settings(here, source.attention[here])
  elif 'alpha' in weights:
    raise UserError(
      f'{here} is a mixture, whose order is not in the checkpoint: give its '
      'gin files as --source_gin_file (its operative_config.gin will do)'
    )
  else:
    found = Layer(dict.fromkeys(_functions(weights)))
  found.weights = weights
  count = len(found.functions)
  if 'alpha' in weights and len(weights['alpha'].value) not in (
    count,
    count - 1,
  ):
    raise _other_size(f'{here}/alpha', len(weights['alpha'].value), count)
  return found


def _settings(scope: str, layer: transformer_layers.SelfAttention) -> Layer:
  """Returns the settings of a model's layer, without its weights."""
  if isinstance(layer, SyntheticLayer):
    settings = {
      f: (described(x), x.last_factors)
      for f, x in zip(
        scopes(layer.synthesizers), layer.synthesizers, strict=True
      )
    }
    return Layer(settings, layer.normalize, layer.index_by)
  if type(layer).__name__ in ('SelfAttention', 'EncDecAttention'):
    return Layer({VANILLA: (described(DotProduct()), DotProduct.last_factors)})
  raise UserError(
    f"{scope}: {type(layer).__name__} cannot be converted; expected T5's own "
    'attention, SyntheticAttention or SyntheticEncDecAttention'
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
    raise _other_size(f'{scope}/alpha', [*weights['alpha'].value.shape], [1])
  if 'R' in weights:
    r, origin = weights.pop('R')
    weights['random/R'] = Weight(r.swapaxes(0, min(1, r.ndim - 1)), origin)
  if 'pi/kernel' in weights:
    weights['dense/W2'] = weights.pop('pi/kernel')
  functions = dict.fromkeys(sorted(_functions(weights), key=VANILLA.__eq__))
  return Layer(functions, index_by='row', weights=weights)


def _shares_query(variables: Collection[str]) -> bool:
  """Whether the queries are the hidden layer of a Dense."""
  return 'dense/W2' in variables and 'dense/W1' not in variables


def _unshare_dense(
  weights: dict[str, Weight], shapes: Mapping[str, list[int]]
) -> None:
  """Copies what a Dense shares, if the shapes have places for the copies."""
  if _shares_query(weights) and 'dense/W1' in shapes:
    q, kernel = weights['q'], weights['dense/W2']
    w1, w2 = shapes['dense/W1'], shapes['dense/W2']
    if q.value.size == math.prod(w1):
      weights['dense/W1'] = Weight(q.value.reshape(w1), q.origin)
    if kernel.value.ndim < len(w2):
      kernels = np.broadcast_to(kernel.value, [w2[0], *kernel.value.shape])
      weights['dense/W2'] = Weight(kernels, kernel.origin)
    if VANILLA not in _functions(weights.keys() - {'dense/W1'}):
      del weights['q']


def _other_size(name: str, there: Any, here: Any) -> UserError:
  return UserError(
    f'{name} is {there} in the checkpoint and {here} in the model: they are of '
    "different sizes. Give the gin file of the checkpoint's size, and for "
    'FactorizedDense its max_length and factors.'
  )


def _owner(name: str) -> tuple[str, type[SynthesizingFunction] | None]:
  """Returns the scope of a variable's function, and the class that declares it.

  If scopes are nested, the innermost one determines the class.
  """
  if name in DotProduct.layer_variables:
    return VANILLA, DotProduct
  scope, _, inner = names.scope(name).partition('/')
  return scope, function_of((inner or scope).rpartition('/')[-1])


def _functions(variables: Collection[str]) -> list[str]:
  """Returns the functions that have these variables."""
  owners = dict.fromkeys(_owner(rest)[0] for rest in variables)
  if _shares_query(variables) and 'k' not in variables:
    owners.pop(VANILLA, None)
  return [owner for owner in owners if owner]


def _last_factors(variables: Collection[str]) -> dict[str, str]:
  """Returns the variables that scale logits, with the function of each."""
  owners = {rest: _owner(rest) for rest in variables}
  found = {
    rest: function
    for rest, (function, kind) in owners.items()
    if kind and rest.rpartition('/')[-1] in kind.last_factors
  }
  if _shares_query(variables):  # q would scale D, too
    found.pop('q', None)
    found.update({'k': VANILLA} if 'k' in variables else {})
  return found


def _scaled(rest: str, value: Array, ratio: Array) -> Array:
  """Multiplies by [heads] or [1]; heads are axis 0 (axis 1 of q and k)."""
  rows = [len(value)] if rest in DotProduct.layer_variables else []
  view = value.reshape(*rows, ratio.size, -1) * np.ravel(ratio)[:, np.newaxis]
  return view.astype(np.float32).reshape(value.shape)
