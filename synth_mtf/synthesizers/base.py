"""Base classes of synthesizing functions."""

import abc
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import gin
import mesh_tensorflow as mtf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Term
from synth_mtf.errors import ConfigurationError

_HOST_MAX_LENGTH = 512  # T5's default

# The gin scope in which cross-attention makes its functions, nested in the
# scope of the stack: `decoder/cross/Random.max_length`.
CROSS_ATTENTION_SCOPE = 'cross'

# All functions, also a user's own, by their variable scope.
_BY_SCOPE: dict[str, type['SynthesizingFunction']] = {}


class SynthesizingFunction(abc.ABC):
  """S(X): computes alignment logits, with or without the layer's input.

  A subclass holds its hyperparameters and implements `logits`. Its variables
  are in a scope named after the class (`FactorizedRandom` ->
  `factorized_random`).

  Attributes:
    letter: its name in tables, as in "Syn (R)".
    last_factors: the last variables that S(X) is linear in: if they are 0, so
      is S(X). Empty if there are none.
    position_axes: the axes of each variable that are positions and have the
      size `max_length`.
    layer_variables: variables of the layer that only this function uses.
    unshaped: hyperparameters that affect the result but no variable's shape.
  """

  last_factors: ClassVar[tuple[str, ...]] = ()
  position_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {}
  layer_variables: ClassVar[tuple[str, ...]] = ()
  unshaped: ClassVar[tuple[str, ...]] = ()

  def __init_subclass__(cls) -> None:
    _BY_SCOPE.setdefault(scope_of(cls), cls)

  @property
  @abc.abstractmethod
  def letter(self) -> str:
    """The function's name in tables; may be a class attribute."""

  @abc.abstractmethod
  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> Term:
    """Computes alpha * S(X).

    Args:
      call: the layer's input and dimensions.
      alpha: the weight of this function in a mixture, [heads] or [], or None
        for 1. Multiply it into the smallest operand, never into the logits.

    Returns:
      Logits of type `call.logits_dtype` over a subset of [batch..., heads,
      length, memory_length], or the factors of an inner product. Logits that
      do not depend on the batch must not have a batch dimension: the layer then
      shares them among the examples.
    """

  @property
  def scope(self) -> str:
    return scope_of(type(self))


def description_of(function: SynthesizingFunction) -> str:
  """Describes a function and its `unshaped` settings: `f(relu=True)`."""
  settings = ', '.join(
    f'{name}={getattr(function, name)!r}' for name in function.unshaped
  )
  return f'{function.scope}({settings})' if settings else function.scope


def scope_of(function: type[SynthesizingFunction]) -> str:
  """Returns the variable scope of a class, its name in snake case."""
  return re.sub(r'(?<!^)(?=[A-Z])', '_', function.__name__).lower()


def function_of(scope: str) -> type[SynthesizingFunction] | None:
  """Returns the class of a variable scope (`random`, `random_1`), if any."""
  return _BY_SCOPE.get(re.sub(r'_\d+$', '', scope))


@dataclasses.dataclass(eq=False)
class Table(SynthesizingFunction):
  """A synthesizing function with a learned axis of positions.

  Args:
    max_length: N, the longest sequence of queries; part of the checkpoint.
      Default: the host's `Unitransformer.max_length` (512).
    tile_length: b <= M. The table has b columns, and key j reads column j mod b
      (future work in the paper, "On Parameters Depending on Sequence Length").
      Default: M.
    memory_max_length: M, the longest sequence of keys. Default: N, or in
      cross-attention the encoder's `Unitransformer.max_length`.

  Attributes:
    limit_of_keys: the gin binding that sets M.

  Raises:
    ConfigurationError: if a length, or a size of a subclass, is out of range.
  """

  # __post_init__ replaces None by the default.
  max_length: Any = None
  tile_length: Any = None
  memory_max_length: Any = None
  limit_of_keys: str = dataclasses.field(init=False)

  def __post_init__(self) -> None:
    check_sizes(self, **vars(self))
    name, scopes = type(self).__name__, gin.current_scope()
    if self.max_length is None:
      self.max_length = host_max_length()
    if self.memory_max_length is None and CROSS_ATTENTION_SCOPE in scopes:
      stacks = ['encoder' if s == 'decoder' else s for s in scopes]
      with gin.config_scope(stacks):
        self.memory_max_length = host_max_length()
    self.limit_of_keys = '/'.join([*scopes, f'{name}.memory_max_length'])
    if self.memory_max_length is None:
      self.memory_max_length = self.max_length
      self.limit_of_keys = f'{name}.max_length'
    if self.tile_length is None:
      self.tile_length = self.memory_max_length
    if self.tile_length > self.memory_max_length:
      raise ConfigurationError(
        f'{name}.tile_length = {self.tile_length}: expected 1 to '
        f'{self.limit_of_keys} ({self.memory_max_length}); change either'
      )

  @property
  def rows_dim(self) -> mtf.Dimension:
    return mtf.Dimension('length', self.max_length)

  @property
  def columns_dim(self) -> mtf.Dimension:
    return mtf.Dimension('memory_length', self.tile_length)

  def check_lengths(self, call: LayerCall, queries: bool = True) -> None:
    """Rejects more keys than M and, if `queries`, more queries than N."""
    if queries:
      binding = f'{type(self).__name__}.max_length'
      require_length(binding, self.max_length, call.index.length_dim)
    require_length(
      self.limit_of_keys, self.memory_max_length, call.memory_length
    )


def check_sizes(owner: object, **settings: Any) -> None:
  """Rejects whole numbers below 1: all of them are sizes."""
  for name, value in settings.items():
    if type(value) is int and value < 1:
      raise ConfigurationError(
        f'{type(owner).__name__}.{name} = {value}: expected at least 1'
      )


def require_length(
  binding: str, max_length: int, sequence: mtf.Dimension
) -> None:
  """Rejects a sequence longer than a learned table.

  Raises:
    ConfigurationError: if it is longer; names the gin binding to change.
  """
  if sequence.size > max_length:
    raise ConfigurationError(
      f'length {sequence.size} exceeds {binding} = {max_length}; set {binding} '
      f'>= {sequence.size} in gin (this changes the checkpoint) or shorten '
      'utils.run.sequence_length'
    )


def host_max_length() -> int:
  """Returns `Unitransformer.max_length` in the current gin scope."""
  bindings = gin.get_bindings(transformer.Unitransformer)
  return bindings.get('max_length', _HOST_MAX_LENGTH)
