"""Converts a checkpoint into one of another variant.

Each attention layer is read into one form, `AttentionWeights`, from which the
target's layer is filled:

- A function that both have keeps its variables. If its alpha changes, its last
  factor is multiplied by the ratio, so that alpha_i S_i(X) stays the same.
- A function that only the target has starts at S(X) = 0 if the target has all
  functions of the source, so that the model computes what it did before, and
  with its usual initial values otherwise.
- A function that only the source has is dropped. If nothing takes its place, it
  must have contributed nothing.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import comparison, names
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host.model import ConfiguredModel
from synth_mtf.layer.synthetic import SyntheticLayer, scopes
from synth_mtf.synthesizers.base import (
  SynthesizingFunction,
  function_of,
  scope_of,
)
from synth_mtf.synthesizers.dot_product import DotProduct

VANILLA = scope_of(DotProduct)

# A logit of alpha whose exp() is negligible beside 1.
_OUT = -30.0
_NEGLIGIBLE = 1e-6

Array = npt.NDArray[Any]


class Weight(NamedTuple):
  """A variable of an attention layer."""

  value: Array
  origin: str = ''  # its name in the source checkpoint, if it is from there
  unchanged: bool = False  # whether the value is exactly that one


@dataclasses.dataclass
class AttentionWeights:
  """An attention layer of a checkpoint; settings are those of our layers."""

  weights: dict[str, Weight]  # by their name in our layers (`dense/W2`)
  functions: Sequence[str]  # scopes of its functions, in their order
  alpha: Optional[Array] = None  # [functions] or [functions, heads]
  normalize: Optional[str] = 'softmax'
  index_by: str = 'position'

  def is_silent(self, function: str) -> bool:
    """Whether a function adds nothing to the logits."""
    last = _last_factor(function, self.weights)
    return np.max(_shares(self)[function]) < _NEGLIGIBLE or (
      last is not None and not self.weights[last].value.any()
    )

  def rename(self, old: str, new: str) -> None:
    """Renames a variable, if it is there."""
    if old in self.weights:
      self.weights[new] = self.weights.pop(old)


class Conversion:
  """A checkpoint as another model's.

  Attributes:
    report: what comes from where.
    exact: whether the model computes what the source computes.
    reread: whether that holds for rows of one sequence only, since the two read
      their tables differently in packed rows (`SyntheticAttention.index_by`).
  """

  def __init__(
    self,
    checkpoint: Checkpoint,
    source: Optional[ConfiguredModel],
    target: ConfiguredModel,
    resize: bool = False,
    vanilla_alpha: Optional[float] = None,
  ) -> None:
    """Plans a conversion.

    Args:
      checkpoint: the source.
      source: its model; needed only if it has mixtures, whose order is not in
        the checkpoint.
      target: the model to convert to.
      resize: grow or shrink tables to the target's max_length.
      vanilla_alpha: alpha of the dot product where other functions join it,
        between 0 and 1; None for an even share. At 1 the others never learn.

    Raises:
      UserError: the two do not fit.
    """
    for model in (source, target):
      if model and any(
        'ensemble' in shape.dimension_names for shape in model.shapes.values()
      ):
        raise UserError(
          'ensembles cannot be converted: convert each member on its own '
          '(Unitransformer.ensemble = None)'
        )
    self._checkpoint = checkpoint
    self._source = source
    self._target = target
    self._resize = resize
    self._vanilla_alpha = vanilla_alpha
    self.exact = True
    self.reread = False
    loaded = {n: n for n in self._other_variables() if n in checkpoint}
    self._unchanged = dict(loaded)
    for scope in target.attention:
      layer = self._fill(scope)
      self.exact &= layer.exact
      self.reread |= layer.reread
      for rest, weight in layer.weights.items():
        if weight.origin:
          loaded[f'{scope}/{rest}'] = weight.origin
        if weight.unchanged:
          self._unchanged[f'{scope}/{rest}'] = weight.origin
    self.report = comparison.compare(
      comparison.kinds_of(target.variables.values()), checkpoint, loaded
    )
    self.report.require_weights()
    if source:
      self.exact &= not any(
        name in source.variables and not names.attention_name(name)
        for name in self.report.left_over
      )
    for name in self._other_variables():
      here = target.variables[name].shape.as_list()
      if here != list(checkpoint.kinds[name].shape):
        raise _other_size(name, checkpoint.kinds[name].shape, here)

  def values(self) -> Iterator[tuple[str, Array]]:
    """Yields the names and values of the converted checkpoint.

    The types are those of the target's variables. Unchanged weights keep their
    optimizer slots.
    """
    for name in self._other_variables():
      yield name, self._typed(name, self._checkpoint[name])
    for scope in self._target.attention:
      for rest, weight in self._fill(scope).weights.items():
        yield f'{scope}/{rest}', self._typed(f'{scope}/{rest}', weight.value)
    for slot in self._checkpoint.slots:
      origin = names.slot_owner(slot)
      for name, source in self._unchanged.items():
        if source == origin:
          yield f'{name}{slot[len(origin) :]}', self._checkpoint[slot]
    yield 'global_step', np.asarray(self._checkpoint.step, np.int64)

  def _typed(self, name: str, value: Array) -> Array:
    dtype = self._target.variables[name].dtype.base_dtype
    return np.asarray(value).astype(dtype.as_numpy_dtype)

  def _other_variables(self) -> list[str]:
    attention = tuple(scope + '/' for scope in self._target.attention)
    return [n for n in self._target.variables if not n.startswith(attention)]

  def _fill(self, scope: str) -> '_FilledLayer':
    shapes = {
      name[len(scope) + 1 :]: variable.shape.as_list()
      for name, variable in self._target.variables.items()
      if name.startswith(scope + '/')
    }
    initial = self._target.initial_values(
      [f'{scope}/{rest}' for rest in shapes if names.may_start_anew(rest)]
    )
    return _FilledLayer(
      scope,
      read_attention(self._checkpoint, scope, self._source),
      self._target.attention[scope],
      shapes,
      {name[len(scope) + 1 :]: value for name, value in initial.items()},
      self._resize,
      self._vanilla_alpha,
    )


def read_attention(
  checkpoint: Checkpoint, scope: str, source: Optional[ConfiguredModel]
) -> AttentionWeights:
  """Reads an attention layer of any class.

  Args:
    checkpoint: what to read it from.
    scope: scope of the layer in the target; the class may differ.
    source: the checkpoint's model, needed if the layer is a mixture.

  Raises:
    UserError: there is no such layer, or it cannot be read.
  """
  prefix, _, layer = scope.rpartition('/')
  kind = names.attention_kind(layer)
  there = [
    name
    for name in names.ATTENTION_CLASSES[kind]
    if f'{prefix}/{name}/o' in checkpoint
  ]
  if not there:
    raise UserError(
      f'the checkpoint {checkpoint.path} has no {kind} in {prefix}/: it was '
      'made by a model of another size'
    )
  here = f'{prefix}/{there[0]}'
  weights = {
    name[len(here) + 1 :]: Weight(checkpoint[name], name, unchanged=True)
    for name in checkpoint.weights
    if name.startswith(here + '/')
    and names.is_used(there[0], name[len(here) + 1 :])
  }
  alpha = weights.pop('alpha').value if 'alpha' in weights else None
  if there[0] == 'Synthesizer':
    return _from_original(here, weights, alpha)
  found = AttentionWeights(weights, [], alpha)
  if source and here in source.attention:
    found.functions = _functions(here, source.attention[here])
    found.normalize = _normalize(source.attention[here])
    found.index_by = getattr(source.attention[here], 'index_by', 'position')
  elif alpha is not None:
    raise UserError(
      f'{here} is a mixture, whose order is not in the checkpoint: give its '
      'gin files as --source_gin_file (its operative_config.gin will do)'
    )
  else:
    own = dict.fromkeys(rest.split('/')[0] for rest in weights if '/' in rest)
    found.functions = [*own, *([VANILLA] if 'q' in weights else [])]
  if VANILLA not in found.functions:
    found.rename('kv', 'v')
  return found


def _functions(
  scope: str, layer: transformer_layers.SelfAttention
) -> list[str]:
  """Scopes of a layer's synthesizing functions."""
  if isinstance(layer, SyntheticLayer):
    return scopes(layer.synthesizers)
  if type(layer).__name__ in ('SelfAttention', 'EncDecAttention'):
    return [VANILLA]
  raise UserError(
    f"{scope}: {type(layer).__name__} cannot be converted; expected T5's own "
    'attention, SyntheticAttention or SyntheticEncDecAttention'
  )


def _normalize(layer: transformer_layers.SelfAttention) -> Optional[str]:
  return layer.normalize if isinstance(layer, SyntheticLayer) else 'softmax'


def _from_original(
  scope: str, weights: dict[str, Weight], alpha: Optional[Array]
) -> AttentionWeights:
  """mesh_tensorflow's own Synthesizer, in our names and shapes.

  Its R is [length, heads, memory_length]; its dense modes use the queries as
  the hidden layer and share the second layer among the heads; its alpha is that
  of the synthesized part, before a sigmoid.
  """
  if 'R1' in weights:
    raise UserError(
      f'{scope}: mode "factorized" gives all queries the same logits and has '
      'no counterpart here'
    )
  found = AttentionWeights(weights, [], index_by='row')
  found.rename('kv', 'v')
  if 'R' in weights:
    found.functions = ['random']
    r = weights.pop('R')
    weights['random/R'] = Weight(np.swapaxes(r.value, 0, 1), r.origin)
  if 'pi/kernel' in weights:
    found.functions = ['dense']
    q, kernel = weights['q'], weights.pop('pi/kernel')
    d_kv, columns = kernel.value.shape
    w1 = q.value.reshape(len(q.value), -1, d_kv)
    w2 = np.broadcast_to(kernel.value, [w1.shape[1], d_kv, columns])
    weights['dense/W1'] = Weight(w1, q.origin)
    weights['dense/W2'] = Weight(w2, kernel.origin)
  if 'k' in weights:
    found.functions = [*found.functions, VANILLA]
  else:
    weights.pop('q', None)  # the first layer of "dense_minus"
  if alpha is not None:
    found.alpha = np.append(alpha, 0.0)
  return found


class _FilledLayer:
  """A layer of the target, filled from the source; see the module's docstring.

  Attributes:
    weights: its variables, by their name in our layers.
    exact: whether it computes what the source computes.
    reread: whether it reads the source's tables differently in packed rows.
  """

  def __init__(
    self,
    scope: str,
    source: AttentionWeights,
    layer: transformer_layers.SelfAttention,
    shapes: Mapping[str, list[int]],
    initial: Mapping[str, Array],
    resize: bool,
    vanilla_alpha: Optional[float],
  ) -> None:
    self._scope = scope
    self._shapes = shapes
    self._initial = initial
    self._resize = resize
    functions = _functions(scope, layer)
    if 'kv' in shapes and VANILLA not in source.functions:
      # Without keys, the one projection of keys and values makes values.
      source.rename('v', 'kv')
    lost = [
      f
      for f in source.functions
      if f not in functions and not source.is_silent(f)
    ]
    before = _shares(source)
    if lost and set(functions) <= set(source.functions):
      raise UserError(
        f'{scope}: {", ".join(lost)} contributes to the logits (alpha up to '
        f'{max(np.max(before[f]) for f in lost):.3g}) and the target has no '
        'place for it. Train until alpha has settled on what is to remain, or '
        'convert to a variant that has it.'
      )
    alpha = _alpha(source, functions, shapes.get('alpha'), vanilla_alpha)
    self.weights = {} if alpha is None else {'alpha': Weight(alpha)}
    after = _shares(AttentionWeights({}, functions, alpha))
    for rest in [name for name in shapes if name != 'alpha']:
      if rest not in source.weights:
        self.weights[rest] = self._new(rest, zero=not lost)
        continue
      old, origin, unchanged = source.weights[rest]
      value = old
      function = _function_of(rest)
      if function in functions and rest == _last_factor(function, shapes):
        value = _scaled(rest, old, before[function] / after[function])
      value = self._resized(rest, value)
      self.weights[rest] = Weight(value, origin, unchanged and value is old)
    kept = {*source.functions} & {*functions} - {VANILLA}
    self.reread = bool(kept) and source.index_by != layer.index_by
    self.exact = (
      not lost
      and source.normalize == _normalize(layer)
      and all(b in shapes for b in names.BIASES if b in source.weights)
      # A function without a last factor cannot make up for another alpha.
      and all(
        np.max(np.abs(before.get(f, 0.0) - after[f])) <= _NEGLIGIBLE
        for f in functions
        if _last_factor(f, shapes) is None
      )
    )

  def _new(self, rest: str, zero: bool) -> Weight:
    """A variable that the source lacks: its initial value, or zeros."""
    if rest not in self._initial:
      raise UserError(f'{self._scope}/{rest} is not in the checkpoint')
    value = self._initial[rest]
    if zero and (_is_last_factor(rest) or rest in names.BIASES):
      value = np.zeros_like(value)
    return Weight(value)

  def _resized(self, rest: str, value: Array) -> Array:
    shape = self._shapes[rest]
    if list(value.shape) == shape:
      return value
    name = f'{self._scope}/{rest}'
    function = _declared_by(rest)
    leaf = rest.rsplit('/', 1)[-1]
    positions = function.position_axes.get(leaf, ()) if function else ()
    changed = [
      a for a, sizes in enumerate(zip(value.shape, shape)) if len({*sizes}) > 1
    ]
    if value.ndim != len(shape) or not {*changed} <= {
      axis % len(shape) for axis in positions
    }:
      if leaf in ('WA', 'WB'):
        raise UserError(
          f'{name} is {list(value.shape)} in the checkpoint, {shape} in the '
          'model: its two factors a b = max_length cannot be resized. Keep '
          "the checkpoint's FactorizedDense.max_length and factors."
        )
      raise _other_size(name, value.shape, shape)
    old, new = value.shape[changed[0]], shape[changed[0]]
    if not self._resize:
      raise UserError(
        f'{name} is for max_length {old} in the checkpoint and {new} in the '
        'model. With --resize the table keeps its '
        + (
          f'first {new} positions and drops the others.'
          if new < old
          else f'{old} positions and gets new ones.'
        )
      )
    result = np.array(self._initial[rest], dtype=np.float32)
    common = tuple(slice(min(a, b)) for a, b in zip(value.shape, shape))
    result[common] = value[common]
    return result


def _alpha(
  source: AttentionWeights,
  functions: Sequence[str],
  shape: Optional[Sequence[int]],
  vanilla_alpha: Optional[float],
) -> Optional[Array]:
  """The alpha of a mixture of those functions; None if it has none."""
  if shape is None:
    return None
  if (
    source.alpha is not None
    and list(source.functions) == list(functions)
    and source.alpha.ndim <= len(shape)
  ):
    missing = (1,) * (len(shape) - source.alpha.ndim)
    alpha = source.alpha.reshape(source.alpha.shape + missing)
    return np.broadcast_to(alpha, shape)
  alpha = np.zeros(shape)
  if vanilla_alpha is not None and VANILLA in functions:
    others = (1 - vanilla_alpha) / vanilla_alpha / (len(functions) - 1)
    alpha[:] = np.log(others) if others > 0 else _OUT
    alpha[list(functions).index(VANILLA)] = 0.0
  return alpha


def _shares(layer: AttentionWeights) -> dict[str, Array]:
  """The weight alpha_i of each function, [heads] or []."""
  if layer.alpha is None:
    return dict.fromkeys(layer.functions, np.ones([]))
  e = np.exp(layer.alpha.astype(np.float64) - layer.alpha.max(axis=0))
  return dict(zip(layer.functions, e / e.sum(axis=0)))


def _function_of(rest: str) -> Optional[str]:
  """The scope of the function to which a variable belongs, or None."""
  if '/' in rest:
    return rest.split('/')[0]
  return VANILLA if rest in DotProduct.layer_variables else None


def _declared_by(rest: str) -> Optional[type[SynthesizingFunction]]:
  """The class that declares a variable: that of the innermost scope."""
  scope = rest.split('/')[-2] if '/' in rest else _function_of(rest)
  return function_of(scope) if scope else None


def _is_last_factor(rest: str) -> bool:
  """Whether a function's logits are 0 where this variable is."""
  function = _declared_by(rest)
  return function is not None and (
    rest.rsplit('/', 1)[-1] == function.last_factor
  )


def _last_factor(
  function: Optional[str], variables: Iterable[str]
) -> Optional[str]:
  """The variable by which a function's logits can be scaled, or None."""
  for rest in variables:
    if _function_of(rest) == function and _is_last_factor(rest):
      return rest
  return None


def _scaled(rest: str, value: Array, ratio: Array) -> Array:
  """Multiplies a variable by [heads] or []; heads are its axis 0, or 1 in q."""
  if np.all(ratio == 1):
    return value
  value = value.astype(np.float32)
  rows = [len(value)] if rest == 'q' else []
  view = value.reshape(*rows, ratio.size, -1) * np.ravel(ratio)[:, np.newaxis]
  return view.reshape(value.shape)


def _other_size(
  name: str, there: Sequence[int], here: Sequence[int]
) -> UserError:
  return UserError(
    f'{name} is {list(there)} in the checkpoint and {list(here)} in the model: '
    "they are of different sizes. Give the gin file of the checkpoint's size."
  )
