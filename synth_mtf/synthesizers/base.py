"""What a synthesizing function is, and what it gets to work with."""

import abc
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Optional, Union

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.errors import ConfigurationError
from synth_mtf.positions import TableIndex
from synth_mtf.projections import Projections

_HOST_MAX_LENGTH = 512  # T5's own, where no gin file sets another


class Site:
  """One call of the layer, as its synthesizing functions see it.

  Attributes:
    context: the host's `transformer.Context`.
    x: the input, [batch..., length, d_model]; [batch..., d_model] in
      incremental decoding.
    memory: the same with `memory_length` in place of `length`.
    projections: the layer's q, k, v and o.
    index: reads tables at the positions of the queries and keys.
    memory_length: Dimension, the number of keys.
    heads: list of Dimension; empty for a single head.
    kv_dim: Dimension, `d_kv` of the layer.
    logits_dtype: the type of alignment logits (float32 also where activations
      are bfloat16, as in the host).
  """

  def __init__(
    self,
    context: transformer.Context,
    x: mtf.Tensor,
    projections: Projections,
    index: TableIndex,
    kv_dim: mtf.Dimension,
    logits_dtype: tf.DType,
  ):
    self.context = context
    self.x = x
    self.projections = projections
    self.index = index
    self.memory_length = index.memory_length_dim
    self.heads = projections.query_heads_dims
    self.kv_dim = kv_dim
    self.logits_dtype = logits_dtype
    self.memory = (
      x
      if context.mode == 'incremental'
      else mtf.replace_dimensions(x, context.length_dim, self.memory_length)
    )

  @functools.cached_property
  def queries(self) -> mtf.Tensor:
    """Q(X), [batch..., length, heads, d_kv]."""
    return self.projections.compute_q(self.x)

  @functools.cached_property
  def keys(self) -> mtf.Tensor:
    """K(X), [batch..., memory_length, heads, d_kv]."""
    if self.projections.shared_kv:
      return self.values
    return self.remember(self.projections.keys(self.memory))

  @functools.cached_property
  def values(self) -> mtf.Tensor:
    """G(X), [batch..., memory_length, heads, d_kv]."""
    return self.remember(self.projections.values(self.memory))

  def remember(self, new: mtf.Tensor) -> mtf.Tensor:
    """What decoding must keep: the memory up to the current token.

    Args:
      new: of all tokens, [batch..., memory_length, ...]; of the current one,
        [batch..., ...], in incremental decoding.

    Returns:
      [batch..., memory_length, ...], in which incremental decoding finds the
      earlier tokens too.
    """
    context = self.context
    if context.mode == 'incremental':
      (earlier,) = context.get_states(1)
      new = _put(new, earlier, self._here, self.memory_length)
    if context.mode in ('first_part', 'incremental'):
      context.record_new_states([new])
    return new

  @property
  def _here(self):
    """Where decoding stands, bool over memory_length (and the batch)."""
    position = self.context.position

    def make():
      columns = mtf.range(self.context.mesh, self.memory_length, tf.int32)
      return mtf.transpose(
        mtf.equal(columns, position),
        mtf.Shape(position.shape.dims + [self.memory_length]),
      )

    return once(self.context, 'here', make)

  @property
  def length(self) -> list[mtf.Dimension]:
    """[length], or [] where one token is decoded at a time."""
    return [d for d in self.x.shape.dims if d == self.context.length_dim]

  @property
  def batch(self) -> list[mtf.Dimension]:
    """The batch dimensions of x, `ensemble` included."""
    return [d for d in self.x.shape.dims[:-1] if d not in self.length]

  @property
  def shared(self) -> list[mtf.Dimension]:
    """All dimensions that logits without a batch dimension may have."""
    return (
      self.context.model.ensemble_dims
      + self.heads
      + self.length
      + [self.memory_length]
    )

  @property
  def local(self) -> mtf.Shape:
    """[batch..., heads, length, memory_length]."""
    return mtf.Shape(
      self.batch + self.heads + self.length + [self.memory_length]
    )

  def with_input(self, x: mtf.Tensor) -> 'Site':
    """The same call for a local function of another input of x's shape."""
    return Site(
      self.context,
      x,
      self.projections,
      self.index,
      self.kv_dim,
      self.logits_dtype,
    )

  def variable(
    self,
    name: str,
    dims: list[mtf.Dimension],
    stddev: float,
    dtype: Optional[tf.DType] = None,
    trainable: bool = True,
  ) -> mtf.Tensor:
    """A normally distributed parameter in the current variable scope.

    Args:
      name: its name in the checkpoint.
      dims: its dimensions; an ensemble adds its own in front.
      stddev: standard deviation of the initial values.
      dtype: type in which it is used; the activations' where None.
      trainable: if False it stays as initialized, and in the checkpoint.

    Returns:
      A tensor of the given type.
    """
    types = self.context.variable_dtype
    return mtf.get_variable(
      self.context.mesh,
      name,
      mtf.Shape(self.context.model.ensemble_dims + dims),
      initializer=tf.random_normal_initializer(stddev=stddev),
      trainable=trainable,
      dtype=mtf.VariableDType(
        types.master_dtype, types.slice_dtype, dtype or types.activation_dtype
      ),
    )


def once(
  context: transformer.Context, name: str, make: Callable[[], mtf.Tensor]
) -> mtf.Tensor:
  """What `make` returned to the first layer of the stack that asked for it.

  Where layers are computed again for their gradients, each on its own, there is
  nothing to share.
  """
  stack = getattr(context.model, 'layer_stack', None)
  if isinstance(stack, transformer.ReversibleLayerStack) or getattr(
    stack, '_recompute_grads', False
  ):
    return make()
  key = ('synth_mtf', name)
  if key not in context.cache:
    context.cache[key] = make()
  return context.cache[key]


def _put(new, memory, here, memory_length):
  """`memory` with `new` where `here` is true, in one pass over the memory."""
  axis = memory.shape.dims.index(memory_length)

  def put(memory, new, here):
    following = [1] * (memory.shape.rank - axis - 1)
    here = tf.reshape(here, here.shape + following)
    return tf.where_v2(here, tf.expand_dims(new, axis), memory)

  return mtf.slicewise(
    put, [memory, new, here], splittable_dims=memory.shape.dims
  )


@dataclasses.dataclass(frozen=True)
class InnerProduct:
  """Alignment logits that have not been multiplied out.

      B[i, j] = sum_k query[i, k] key[j, k]

  Several of them over the same batch are one product over all their k, which
  is cheaper than the sum of the products.

  Attributes:
    query: [batch..., length, heads, k], or a subset.
    key: [batch..., memory_length, heads, k], or a subset.
    k: the dimension that is summed over.
  """

  query: mtf.Tensor
  key: mtf.Tensor
  k: mtf.Dimension

  @property
  def dims(self) -> set[mtf.Dimension]:
    """The dimensions of the logits."""
    return set(self.query.shape.dims + self.key.shape.dims) - {self.k}


class SynthesizingFunction(abc.ABC):
  """S(X): makes alignment logits from the layer's input, or from nothing.

  A subclass holds its hyperparameters and implements `logits`. Its variables
  live in a scope named after the class (`FactorizedRandom` ->
  `factorized_random`).
  """

  @abc.abstractmethod
  def logits(
    self, site: Site, alpha: Optional[mtf.Tensor]
  ) -> Union[mtf.Tensor, InnerProduct]:
    """Computes alpha * S(X).

    Args:
      site: the layer's input and dimensions.
      alpha: the weight of this function in a mixture, [heads] or [], or None
        for 1. It belongs on the smallest operand, never on the logits.

    Returns:
      Logits of type `site.logits_dtype` over a subset of [batch..., heads,
      length, memory_length], or the factors of an inner product that makes
      them. What does not depend on the batch has no batch dimension; the layer
      sees from that what it may share.
    """

  def require_positive(self, argument: str, value: Optional[int]) -> None:
    """Refuses a size below 1; None is a default and passes.

    Raises:
      ConfigurationError: naming the gin binding.
    """
    if value is not None and value < 1:
      raise ConfigurationError(
        f'{type(self).__name__}.{argument} = {value}: expected at least 1'
      )

  @property
  def scope(self) -> str:
    """The variable scope: the class name in snake case."""
    return re.sub(r'(?<!^)(?=[A-Z])', '_', type(self).__name__).lower()


class Table(SynthesizingFunction):
  """A synthesizing function with a learned axis of `max_length` positions.

  Attributes:
    max_length: N, the longest sequence; part of the checkpoint.
    tile_length: b, the number of columns; N unless tiling was asked for.
  """

  def __init__(
    self, max_length: Optional[int] = None, tile_length: Optional[int] = None
  ):
    """Creates a table.

    Args:
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      tile_length: b <= N. The table has b columns and key j reads column
        j mod b (section 3.1 of the paper leaves this to future work).

    Raises:
      ConfigurationError: if a length does not fit.
    """
    name = type(self).__name__
    if max_length is None:
      max_length = host_max_length()
    self.require_positive('max_length', max_length)
    if tile_length is not None and not 1 <= tile_length <= max_length:
      raise ConfigurationError(
        f'{name}.tile_length = {tile_length}: expected 1 to max_length '
        f'({max_length}); change {name}.tile_length or {name}.max_length'
      )
    self.max_length = max_length
    self.tile_length = tile_length or max_length

  @property
  def rows_dim(self) -> mtf.Dimension:
    """The `length` axis of the table."""
    return mtf.Dimension('length', self.max_length)

  @property
  def columns_dim(self) -> mtf.Dimension:
    """The `memory_length` axis of the table."""
    return mtf.Dimension('memory_length', self.tile_length)

  def check_length(self, site: Site) -> None:
    """Refuses a sequence that is longer than `max_length`.

    Raises:
      ConfigurationError: naming the gin binding to change.
    """
    require_length(
      type(self).__name__, self.max_length, site.memory_length.size
    )


def require_length(owner: str, max_length: int, length: int) -> None:
  """Refuses a sequence that is longer than a learned table of `owner`.

  Raises:
    ConfigurationError: naming the gin binding to change.
  """
  if length > max_length:
    raise ConfigurationError(
      f'length {length} exceeds max_length {max_length} of the {owner} table; '
      f'set {owner}.max_length >= {length} in gin (this changes the '
      'checkpoint) or shorten utils.run.sequence_length'
    )


def host_max_length() -> int:
  """`Unitransformer.max_length` as gin has it here, scopes included."""
  bindings = gin.get_bindings(transformer.Unitransformer)
  return bindings.get('max_length', _HOST_MAX_LENGTH)


def weighted(x: mtf.Tensor, alpha: Optional[mtf.Tensor]) -> mtf.Tensor:
  """The product alpha x, where None stands for 1."""
  return x if alpha is None else x * mtf.cast(alpha, x.dtype)
