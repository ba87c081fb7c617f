"""Conversion of a checkpoint into one of another variant.

Each layer of self-attention and of cross-attention is brought into one form,
`AttentionWeights`, and the target's layer is filled from it:

- a function that both have keeps its variables. Where its alpha changes, one
  operand is multiplied by the quotient, so that alpha_i S_i(X) stays the same;
- a function that only the target has starts at S(X) = 0 if the others make up
  the whole source layer, so that the model computes what it computed before,
  and with its usual initial values otherwise;
- a function that only the source has is dropped. If what remains is meant to be
  the same layer, the function must have contributed nothing.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
from mesh_tensorflow.transformer import transformer_layers

from synth_mtf.checkpoints import comparison, names
from synth_mtf.checkpoints.files import Checkpoint
from synth_mtf.errors import UserError
from synth_mtf.host.model import ConfiguredModel
from synth_mtf.layer.mixing import scopes
from synth_mtf.layer.synthetic import SyntheticLayer
from synth_mtf.synthesizers.base import (
  SynthesizingFunction,
  function_of,
  scope_of,
)
from synth_mtf.synthesizers.dot_product import DotProduct

VANILLA = scope_of(DotProduct)

# A logit of alpha at which exp() is nothing compared with 1.
_OUT = -30.0
_NOTHING = 1e-6


@dataclasses.dataclass(frozen=True)
class Options:
  """How to convert.

  Attributes:
    resize: grow or shrink tables to the target's max_length.
    vanilla_alpha: alpha of the dot product where other functions join it,
      between 0 and 1; None for an even share. At 1 the others never learn.
  """

  resize: bool = False
  vanilla_alpha: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class AttentionWeights:
  """An attention layer of a checkpoint.

  Attributes:
    variables: by their name in our layers (`q`, `dense/W2`).
    origins: their names in the checkpoint.
    functions: scopes of its synthesizing functions, in their order.
    alpha: the variable, [functions] or [functions, heads], if it has one.
    normalize: how the logits become weights, as in our layers.
    index_by: how tables are read in packed rows, as in our layers.
  """

  variables: Mapping[str, npt.NDArray[Any]]
  origins: Mapping[str, str]
  functions: Sequence[str]
  alpha: Optional[npt.NDArray[Any]] = None
  normalize: Optional[str] = 'softmax'
  index_by: str = 'position'

  def share(self, function: str) -> npt.NDArray[Any]:
    """The alpha of a function, [heads] or []."""
    if self.alpha is None:
      return np.ones([])
    return _softmax(self.alpha)[list(self.functions).index(function)]

  def is_silent(self, function: str) -> bool:
    """Whether a function adds nothing to the logits."""
    last = _last_factor(function, self.variables)
    return np.max(self.share(function)) < _NOTHING or (
      last is not None and not self.variables[last].any()
    )


@dataclasses.dataclass
class _Filled:
  """The target's layer.

  Attributes:
    values: its variables, by their name in our layers.
    origins: the names in the checkpoint of those that come from it.
    unchanged: those that are just what the checkpoint holds.
    exact: whether it computes what the source computes.
    reread: whether it reads the source's tables otherwise in packed rows.
  """

  values: dict[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)
  origins: dict[str, str] = dataclasses.field(default_factory=dict)
  unchanged: set[str] = dataclasses.field(default_factory=set)
  exact: bool = True
  reread: bool = False


class Conversion:
  """A checkpoint as another model's.

  Attributes:
    report: what comes from where.
    exact: whether the model computes what the source computes.
    reread: whether that holds for rows of one sequence only, since the two read
      their tables otherwise in packed rows (`SyntheticAttention.index_by`).
  """

  def __init__(
    self,
    checkpoint: Checkpoint,
    source: Optional[ConfiguredModel],
    target: ConfiguredModel,
    options: Options = Options(),  # noqa: B008 (it is frozen)
  ) -> None:
    """Plans a conversion.

    Args:
      checkpoint: the source.
      source: its model; needed only if it has mixtures, whose order is not in
        the checkpoint.
      target: the model to convert to.
      options: how to convert.

    Raises:
      UserError: the two do not fit.
    """
    for model in (source, target):
      if model and any(
        'ensemble' in shape.dimension_names for shape in model.shapes.values()
      ):
        raise UserError(
          'there is no conversion of ensembles: convert each member on its own '
          '(Unitransformer.ensemble = None)'
        )
    self._checkpoint = checkpoint
    self._source = source
    self._target = target
    self._options = options
    self.exact = True
    self.reread = False
    loaded = {n: n for n in self._other_variables() if n in checkpoint}
    self._unchanged = dict(loaded)
    for scope in target.attention:
      filled = self._fill(scope)
      self.exact &= filled.exact
      self.reread |= filled.reread
      for rest, origin in filled.origins.items():
        loaded[f'{scope}/{rest}'] = origin
        if rest in filled.unchanged:
          self._unchanged[f'{scope}/{rest}'] = origin
    self.report = comparison.compare(
      comparison.kinds_of(target.variables.values()), checkpoint, loaded
    )
    self.report.insist_on_weights()
    if source:
      self.exact &= not any(
        name in source.variables and not names.attention_name(name)
        for name in self.report.left_over
      )
    for name in self._other_variables():
      here = target.variables[name].shape.as_list()
      there = checkpoint.kinds[name].shape
      if here != list(there):
        raise _other_size(name, there, here)

  def values(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yields the names and values of the converted checkpoint.

    The types are those of the target's variables. Weights that stay as they are
    keep their optimizer slots.
    """
    for name in self._other_variables():
      yield name, self._typed(name, self._checkpoint[name])
    for scope in self._target.attention:
      for rest, value in self._fill(scope).values.items():
        yield f'{scope}/{rest}', self._typed(f'{scope}/{rest}', value)
    for slot in self._checkpoint.slots:
      origin = names.slot_owner(slot)
      for name, source in self._unchanged.items():
        if source == origin:
          yield f'{name}{slot[len(origin) :]}', self._checkpoint[slot]
    yield 'global_step', np.asarray(self._checkpoint.step, np.int64)

  def _typed(self, name: str, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    dtype = self._target.variables[name].dtype.base_dtype
    return np.asarray(value).astype(dtype.as_numpy_dtype)

  def _other_variables(self) -> list[str]:
    scopes_ = tuple(scope + '/' for scope in self._target.attention)
    return [n for n in self._target.variables if not n.startswith(scopes_)]

  def _fill(self, scope: str) -> _Filled:
    variables = {
      name[len(scope) + 1 :]: variable
      for name, variable in self._target.variables.items()
      if name.startswith(scope + '/')
    }
    initial = self._target.initial_values(
      [f'{scope}/{rest}' for rest in variables if names.may_start_anew(rest)]
    )
    return _fill(
      scope,
      read_attention(self._checkpoint, scope, self._source),
      self._target.attention[scope],
      {rest: v.shape.as_list() for rest, v in variables.items()},
      {name[len(scope) + 1 :]: value for name, value in initial.items()},
      self._options,
    )


def read_attention(
  checkpoint: Checkpoint, scope: str, source: Optional[ConfiguredModel]
) -> AttentionWeights:
  """Reads an attention layer of whatever class.

  Args:
    checkpoint: what to read it from.
    scope: scope of the layer in the target; the class may differ.
    source: the checkpoint's model, needed if the layer is a mixture.

  Raises:
    UserError: it has no such layer, or one that cannot be read.
  """
  prefix, _, layer = scope.rpartition('/')
  kind = names.attention_kind(layer)
  found = [
    name
    for name in names.ATTENTION_CLASSES[kind]
    if f'{prefix}/{name}/o' in checkpoint
  ]
  if not found:
    raise UserError(
      f'the checkpoint {checkpoint.path} has no {kind} in {prefix}/: it was '
      'made by another size of model'
    )
  here = f'{prefix}/{found[0]}'
  origins = {
    n[len(here) + 1 :]: n
    for n in checkpoint.weights
    if n.startswith(here + '/')
  }
  variables = {
    rest: checkpoint[n]
    for rest, n in origins.items()
    if names.is_used(found[0], rest)
  }
  if found[0] == 'Synthesizer':
    return _from_original(here, variables, origins)
  alpha = variables.pop('alpha', None)
  normalize: Optional[str] = 'softmax'
  index_by = 'position'
  if source and here in source.attention:
    functions = _functions(here, source.attention[here])
    normalize = _normalize(source.attention[here])
    index_by = getattr(source.attention[here], 'index_by', index_by)
  elif alpha is not None:
    raise UserError(
      f'{here} is a mixture whose order is not in the checkpoint: give its gin '
      'files as --source_gin_file (its operative_config.gin will do)'
    )
  else:
    functions = list(
      dict.fromkeys(r.split('/')[0] for r in variables if '/' in r)
    )
    functions += [VANILLA] if 'q' in variables else []
  if VANILLA not in functions:
    _rename('kv', 'v', variables, origins)
  return AttentionWeights(
    variables, origins, functions, alpha, normalize, index_by
  )


def _rename(old: str, new: str, *by_name: dict[str, Any]) -> None:
  """Renames a variable, if it is there."""
  for values in by_name:
    if old in values:
      values[new] = values.pop(old)


def _functions(
  scope: str, layer: transformer_layers.SelfAttention
) -> list[str]:
  """Scopes of a layer's synthesizing functions."""
  if isinstance(layer, SyntheticLayer):
    return scopes(layer.synthesizers)
  if type(layer).__name__ in ('SelfAttention', 'EncDecAttention'):
    return [VANILLA]
  raise UserError(
    f'{scope}: there is no conversion to {type(layer).__name__}; expected '
    "T5's own attention, SyntheticAttention or SyntheticEncDecAttention"
  )


def _normalize(layer: transformer_layers.SelfAttention) -> Optional[str]:
  """How a layer's logits become weights: T5's by a softmax."""
  return layer.normalize if isinstance(layer, SyntheticLayer) else 'softmax'


def _from_original(
  scope: str,
  variables: Mapping[str, npt.NDArray[Any]],
  origins: Mapping[str, str],
) -> AttentionWeights:
  """mesh_tensorflow's own Synthesizer, in our names and shapes.

  Its R is [length, heads, memory_length]; its dense modes use the queries as
  the hidden layer and share the second layer among the heads; its alpha is that
  of the synthesized part, before a sigmoid.
  """
  if 'R1' in variables:
    raise UserError(
      f'{scope}: mode "factorized" gives all queries the same logits and has '
      'no counterpart here'
    )
  values, froms = dict(variables), dict(origins)

  def move(old: str, new: str, value: npt.NDArray[Any]) -> None:
    values[new], froms[new] = value, froms[old]

  if 'kv' in values:
    move('kv', 'v', values['kv'])
    del values['kv'], froms['kv']
  alpha = values.pop('alpha', None)
  froms.pop('alpha', None)
  functions = []
  if 'R' in values:
    functions.append('random')
    move('R', 'random/R', np.swapaxes(values['R'], 0, 1))
    del values['R'], froms['R']
  if 'pi/kernel' in values:
    functions.append('dense')
    d_kv, columns = values['pi/kernel'].shape
    heads = values['q'].size // values['q'].shape[0] // d_kv
    move('q', 'dense/W1', values['q'].reshape(-1, heads, d_kv))
    move(
      'pi/kernel',
      'dense/W2',
      np.broadcast_to(values['pi/kernel'], [heads, d_kv, columns]),
    )
    del values['pi/kernel'], froms['pi/kernel']
  if 'k' in values:
    functions.append(VANILLA)
  elif 'q' in values:  # the first layer of "dense_minus"
    del values['q'], froms['q']
  if alpha is not None:
    alpha = np.append(alpha, 0.0)
  return AttentionWeights(values, froms, functions, alpha, index_by='row')


def _fill(
  scope: str,
  source: AttentionWeights,
  layer: transformer_layers.SelfAttention,
  shapes: Mapping[str, Sequence[int]],
  initial: Mapping[str, npt.NDArray[Any]],
  options: Options,
) -> _Filled:
  """Fills a layer of the target; see the module's description."""
  filled = _Filled()
  functions = _functions(scope, layer)
  if 'kv' in shapes and VANILLA not in source.functions:
    # Without keys, the one projection of keys and values makes values.
    variables, origins = dict(source.variables), dict(source.origins)
    _rename('v', 'kv', variables, origins)
    source = dataclasses.replace(source, variables=variables, origins=origins)
  added = [f for f in functions if f not in source.functions]
  lost = [
    f
    for f in source.functions
    if f not in functions and not source.is_silent(f)
  ]
  if lost and not added:
    raise UserError(
      f'{scope}: {", ".join(lost)} contributes to the logits (alpha up to '
      f'{max(np.max(source.share(f)) for f in lost):.3g}) and the target has '
      'no place for it. Train alpha to the end that is to remain, or convert '
      'to a variant that has it.'
    )
  filled.exact = not lost
  _fill_alpha(filled, source, functions, shapes, options)
  alphas = AttentionWeights({}, {}, functions, filled.values.get('alpha'))
  for rest, shape in shapes.items():
    if rest == 'alpha':
      continue
    if rest not in source.variables:
      filled.values[rest] = _new_value(rest, initial, scope, filled.exact)
      continue
    old = source.variables[rest]
    value = old
    function = _function_of(rest)
    if function in functions and rest == _last_factor(function, shapes):
      quotient = source.share(function) / alphas.share(function)
      value = _scaled(rest, old, quotient)
    value = _resized(f'{scope}/{rest}', value, shape, initial, options)
    filled.values[rest] = value
    filled.origins[rest] = source.origins[rest]
    if value is old:
      filled.unchanged.add(rest)
  filled.exact &= source.normalize == _normalize(layer)
  kept = {*source.functions} & {*functions} - {VANILLA}
  filled.reread = bool(kept) and source.index_by != layer.index_by
  filled.exact &= _is_exact(source, functions, alphas, shapes)
  return filled


def _fill_alpha(
  filled: _Filled,
  source: AttentionWeights,
  functions: Sequence[str],
  shapes: Mapping[str, Sequence[int]],
  options: Options,
) -> None:
  if 'alpha' not in shapes:
    return
  shape = shapes['alpha']
  if source.alpha is not None and list(source.functions) == list(functions):
    rank = len(shape) - source.alpha.ndim
    alpha = source.alpha.reshape(source.alpha.shape + (1,) * rank)
    if rank >= 0:
      filled.values['alpha'] = np.broadcast_to(alpha, shape)
      return
  alpha = np.zeros(shape)
  share = options.vanilla_alpha
  if share is not None and VANILLA in functions:
    others = len(functions) - 1
    alpha[:] = _OUT if share >= 1 else np.log((1 - share) / share / others)
    alpha[list(functions).index(VANILLA)] = 0.0
  filled.values['alpha'] = alpha


def _new_value(
  rest: str, initial: Mapping[str, npt.NDArray[Any]], scope: str, exact: bool
) -> npt.NDArray[Any]:
  if rest not in initial:
    raise UserError(f'{scope}/{rest} is not in the checkpoint')
  value = initial[rest]
  if exact and (_is_last_factor(rest) or rest in names.BIASES):
    return np.zeros_like(value)
  return value


def _is_exact(
  source: AttentionWeights,
  functions: Sequence[str],
  alphas: AttentionWeights,
  shapes: Mapping[str, Sequence[int]],
) -> bool:
  """Whether what has no operand to take up a quotient is right as it is."""
  if any(b in source.variables and b not in shapes for b in names.BIASES):
    return False
  for function in functions:
    if _last_factor(function, shapes) is None:
      before = source.share(function) if function in source.functions else 0.0
      if np.max(np.abs(before - alphas.share(function))) > _NOTHING:
        return False
  return True


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


def _last_factor(function: str, variables: Iterable[str]) -> Optional[str]:
  """The operand of a function into which a weight is multiplied, or None."""
  for rest in variables:
    if _function_of(rest) == function and _is_last_factor(rest):
      return rest
  return None


def _scaled(
  rest: str, value: npt.NDArray[Any], quotient: npt.NDArray[Any]
) -> npt.NDArray[Any]:
  """Multiplies a variable by [heads] or []; heads are its axis 0, or 1 in q."""
  if np.all(quotient == 1):
    return value
  flat = np.ravel(quotient)
  value = value.astype(np.float32)
  if rest == 'q':
    view = value.reshape(value.shape[0], flat.size, -1) * flat[:, np.newaxis]
  else:
    view = value.reshape(flat.size, -1) * flat[:, np.newaxis]
  return view.reshape(value.shape)


def _resized(
  name: str,
  value: npt.NDArray[Any],
  shape: Sequence[int],
  initial: Mapping[str, npt.NDArray[Any]],
  options: Options,
) -> npt.NDArray[Any]:
  if list(value.shape) == list(shape):
    return value
  function = _declared_by(name)
  leaf = name.rsplit('/', 1)[-1]
  positions = function.position_axes.get(leaf, ()) if function else ()
  axes = [a % len(shape) for a in positions]
  if len(value.shape) != len(shape) or any(
    value.shape[a] != shape[a] and a not in axes for a in range(len(shape))
  ):
    if leaf in ('WA', 'WB'):
      raise UserError(
        f'{name} is {list(value.shape)} in the checkpoint, {shape} in the '
        'model: its two factors a b = max_length cannot be resized. Keep '
        "the checkpoint's FactorizedDense.max_length and factors."
      )
    raise _other_size(name, value.shape, shape)
  old, new = next(
    (value.shape[a], shape[a]) for a in axes if value.shape[a] != shape[a]
  )
  if not options.resize:
    raise UserError(
      f'{name} is for max_length {old} in the checkpoint and {new} in the '
      'model. With --resize the table '
      + (
        f'keeps its first {new} positions and forgets the others.'
        if new < old
        else f'keeps its {old} positions and gets new ones.'
      )
    )
  rest = next(r for r in initial if name.endswith('/' + r))
  result = np.array(initial[rest], dtype=np.float32)
  common = tuple(slice(min(a, b)) for a, b in zip(value.shape, shape))
  result[common] = value[common]
  return result


def _other_size(
  name: str, there: Sequence[int], here: Sequence[int]
) -> UserError:
  return UserError(
    f'{name} is {list(there)} in the checkpoint and {list(here)} in the model: '
    'they are of different sizes. Give the gin file of the size that it has.'
  )


def _softmax(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
  e = np.exp(x.astype(np.float64) - x.max(axis=0))
  return e / e.sum(axis=0)
