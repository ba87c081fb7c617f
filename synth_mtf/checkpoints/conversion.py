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

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from synth_mtf.checkpoints import (
  attention_layers,
  comparison,
  files,
  identity,
  names,
)
from synth_mtf.checkpoints.attention_layers import VANILLA, Array, Layer, Weight
from synth_mtf.errors import UserError
from synth_mtf.host.model import ConfiguredModel
from synth_mtf.synthesizers.dot_product import DotProduct

# Alphas, and differences between alphas, below this value are ignored.
_NEGLIGIBLE = 1e-6


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
    _reject_ensembles(target)
    self._checkpoint = checkpoint
    self._target = target
    stored = names.corresponding(target.variables, checkpoint.variables)
    weights = {}
    for name, origin in stored.items():
      if not _is_in(target.attention, name):
        value = _fitted(target, name, checkpoint[origin], resize)
        weights[name] = Weight(value, origin)
    self.exact = True
    self.reread = False
    for scope in target.attention:
      output = stored.get(f'{scope}/o')
      if not output:
        raise UserError(
          f'the checkpoint {checkpoint.path} has no attention layer like '
          f'{scope}: it was made by a model of another size'
        )
      origin = names.scope(output)
      source_layer = attention_layers.read(checkpoint, origin, source)
      layer = _FilledLayer(target, scope, source_layer, resize)
      weights |= layer.weights
      self.exact &= layer.exact
      self.reread |= layer.reread
    self.report = comparison.Comparison(
      comparison.specs_of(target.variables.values()),
      checkpoint,
      {name: w.origin for name, w in weights.items() if w.origin},
    )
    self.report.require_weights()
    if source:
      self.exact &= _agree(_t5_settings(source), _t5_settings(target))
    for name in self.report.left_over:
      self.exact &= names.split(name).layer != ''
    self.rounding = (0.0, '')
    self.values: dict[str, Array] = {
      'global_step': np.asarray(checkpoint.step, np.int64)
    }
    for name, weight in weights.items():
      self._add(name, weight)

  def _add(self, name: str, weight: Weight) -> None:
    """Adds a weight, in the target's type, and its slots if it is unchanged."""
    value, origin = weight
    dtype = self._target.variables[name].dtype.base_dtype.as_numpy_dtype
    rounded = value.astype(dtype)
    self.values[name] = rounded
    if dtype != value.dtype:
      errors = np.abs(rounded.astype(np.float32) - value.astype(np.float32))
      self.rounding = max(self.rounding, (float(errors.max(initial=0)), name))
    slots = [s for s in self._checkpoint.slots if names.slot_owner(s) == origin]
    if slots and np.array_equal(value, self._checkpoint[origin]):
      for slot in slots:
        self.values[name + slot.removeprefix(origin)] = self._checkpoint[slot]


class _FilledLayer:
  """One of the target's attention layers, filled from a layer of the source.

  Attributes:
    weights: those of the layer, by the names of their variables.
    exact: whether the layer computes what the source's layer computes.
    reread: whether the two index tables differently in packed rows.
  """

  def __init__(
    self, model: ConfiguredModel, scope: str, source: Layer, resize: bool
  ) -> None:
    self._model = model
    self._scope = scope
    self._source = source
    self._resize = resize
    self._target = attention_layers.configured(scope, model.attention[scope])
    self._shapes = self._target_shapes()
    source.separate_weights(self._shapes)
    self._shares_before = source.shares()
    self._check_heads(model.attention[scope].num_heads)
    if 'alpha' in self._shapes:
      self._target.weights['alpha'] = self._alpha(self._shapes.pop('alpha'))
    self._shares_after = self._target.shares()
    self._last_factors = attention_layers.last_factors(self._shapes)
    self._lost = self._lost_functions()
    if set(self._target.functions) <= set(source.functions):
      self._check_lost()
    self._is_scaled = True
    self._fill()
    self.weights = {
      f'{scope}/{name}': weight for name, weight in self._target.weights.items()
    }
    self._common = source.functions.keys() & self._target.functions.keys()
    self.exact = self._is_exact()
    has_tables = bool(self._common - {VANILLA})
    self.reread = has_tables and source.index_by != self._target.index_by

  def _target_shapes(self) -> dict[str, list[int]]:
    """Returns the shapes of the variables, by their name in the layer."""
    prefix = f'{self._scope}/'
    return {
      name.removeprefix(prefix): variable.shape.as_list()
      for name, variable in self._model.variables.items()
      if name.startswith(prefix)
    }

  def _check_heads(self, num_heads: int) -> None:
    sizes = [share.size for share in self._shares_before.values()]
    heads = max(sizes, default=1)
    if heads not in (1, num_heads):
      raise attention_layers.other_size(
        f'{self._scope}: the number of heads', heads, num_heads
      )

  def _alpha(self, shape: list[int]) -> Weight:
    """Returns the source's alpha if it fits, else equal weights."""
    functions = list(self._source.functions)
    is_same_mixture = functions == list(self._target.functions)
    alpha = self._source.weights.get('alpha')
    if alpha and is_same_mixture and list(alpha.value.shape) == shape:
      return alpha
    return Weight(np.zeros(shape))

  def _lost_functions(self) -> list[str]:
    """Returns the functions that contribute and are not in the target."""
    weights = self._source.weights
    factors = attention_layers.last_factors(weights)
    nonzero = {factors[name] for name in factors if weights[name].value.any()}
    lost = []
    for function in self._source.functions:
      is_weighted = np.max(self._shares_before[function]) >= _NEGLIGIBLE
      is_zero = function in factors.values() and function not in nonzero
      is_kept = function in self._target.functions
      if is_weighted and not is_zero and not is_kept:
        lost.append(function)
    return lost

  def _check_lost(self) -> None:
    if self._lost:
      alpha = max(np.max(self._shares_before[name]) for name in self._lost)
      raise UserError(
        f'{self._scope}: {", ".join(self._lost)} contributes to the logits '
        f'(alpha up to {alpha:.3g}), and the target does not have it. Train '
        'until its alpha is negligible, or convert to a variant that has it.'
      )

  def _fill(self) -> None:
    """Fills the target's variables."""
    known = self._source.weights
    missing = [self._full(name) for name in self._shapes if name not in known]
    initial = self._model.initial_values(missing)
    for name in self._shapes:
      if name in known:
        weight = self._converted(name)
      else:
        weight = Weight(self._started(name, initial[self._full(name)]))
      self._target.weights[name] = weight

  def _started(self, name: str, initial: Array) -> Array:
    """Returns the value of a variable that the source does not have."""
    adds_to_logits = name in self._last_factors or name in names.BIASES
    if adds_to_logits and not self._lost:
      return np.zeros_like(initial)
    return initial

  def _converted(self, name: str) -> Weight:
    """Returns a weight of the source in the target's shape and scale."""
    value, origin = self._source.weights[name]
    full = self._full(name)
    value = _fitted(self._model, full, value, self._resize)
    function = self._last_factors.get(name)
    if function not in self._shares_before:
      return Weight(value, origin)
    ratio = self._shares_before[function] / self._shares_after[function]
    if np.ptp(ratio) <= _NEGLIGIBLE:
      ratio = np.ravel(ratio)[:1]
    if ratio.size == 1 or 'heads' in self._model.shapes[full].dimension_names:
      value = _scaled(name, value, ratio)
    else:  # heads whose alphas differ share it
      self._is_scaled = False
    return Weight(value, origin)

  def _is_exact(self) -> bool:
    source, target = self._source, self._target
    return (
      not self._lost
      and self._is_scaled
      and source.normalize == target.normalize
      and self._has_same_settings()
      and not self._drops_weights()
      and self._keeps_shares()
    )

  def _has_same_settings(self) -> bool:
    """Whether the functions of both layers have the same settings, if known."""
    for function in self._common:
      known = self._source.functions[function]
      if known is not None and known != self._target.functions[function]:
        return False
    return True

  def _drops_weights(self) -> bool:
    """Whether the target lacks a bias, or a weight of a function in both."""
    for name, weight in self._source.weights.items():
      if name in self._shapes:
        continue
      # Such as a bias that the target's function does not have.
      is_of_common = attention_layers.owner(name)[0] in self._common
      if name in names.BIASES or (is_of_common and weight.value.any()):
        return True
      if name == names.VALUE_BIAS and weight.value.any():
        return True
    return False

  def _keeps_shares(self) -> bool:
    """Whether functions without a last factor, to scale, keep their alphas."""
    for function, after in self._shares_after.items():
      if function not in self._last_factors.values():
        before = self._shares_before.get(function, 0.0)
        if np.max(np.abs(before - after)) > _NEGLIGIBLE:
          return False
    return True

  def _full(self, name: str) -> str:
    return f'{self._scope}/{name}'


def _reject_ensembles(model: ConfiguredModel) -> None:
  for shape in model.shapes.values():
    if 'ensemble' in shape.dimension_names:
      raise UserError(
        'ensembles cannot be converted: convert each member on its own '
        '(Unitransformer.ensemble = None)'
      )


def _is_in(scopes: Iterable[str], name: str) -> bool:
  return any(name.startswith(f'{scope}/') for scope in scopes)


def _fitted(
  model: ConfiguredModel, name: str, value: Array, resize: bool
) -> Array:
  """Fits a value to its variable's shape; only positions may be resized."""
  stored = list(value.shape)
  expected = model.variables[name].shape.as_list()
  if stored == expected:
    return value
  if len(stored) != len(expected):
    raise attention_layers.other_size(name, stored, expected)
  pairs = enumerate(zip(stored, expected, strict=True))
  changed = [axis for axis, (before, after) in pairs if before != after]
  if not set(changed) <= _position_axes(name, len(expected)):
    raise attention_layers.other_size(name, stored, expected)
  if not resize:
    axis = changed[0]
    raise UserError(
      f'{name} is for max_length {stored[axis]} in the checkpoint and '
      f'{expected[axis]} in the model. With --resize, the table keeps the '
      'positions that both have, and new ones get initial values.'
    )
  kept = tuple(slice(size) for size in np.minimum(stored, expected))
  resized = model.initial_values([name])[name].copy()
  resized[kept] = value[kept]
  return resized


def _position_axes(name: str, ndim: int) -> set[int]:
  """Returns the axes of a variable that are positions."""
  _, function_class = attention_layers.owner(name)
  if function_class is None:
    return set()
  leaf = name.rpartition('/')[-1]
  axes = function_class.position_axes.get(leaf, ())
  return {axis % ndim for axis in axes}  # they may count from the end


def _t5_settings(model: ConfiguredModel) -> dict[str, dict[str, Any]]:
  """Returns the settings of T5's layers that no shape shows, by place."""
  settings = {}
  for scope, layer in identity.describe(model.transformer).items():
    settings[names.scope(scope)] = {
      'activation': layer.get('activation'),
      'fold_scaling_into_initializer': layer.get(
        'fold_scaling_into_initializer'
      ),
    }
  return settings


def _agree(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
  """Whether two dictionaries have the same values for the keys in both."""
  return all(first[key] == second[key] for key in first.keys() & second.keys())


def _scaled(name: str, value: Array, ratio: Array) -> Array:
  """Multiplies by [heads] or [1]; heads are axis 0 (axis 1 of q and k)."""
  leading = [len(value)] if name in DotProduct.layer_variables else []
  per_head = value.reshape(*leading, ratio.size, -1)
  scaled = per_head * np.ravel(ratio)[:, np.newaxis]
  return scaled.astype(np.float32).reshape(value.shape)
