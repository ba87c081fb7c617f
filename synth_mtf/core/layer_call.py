"""One call of an attention layer, as its parts see it."""

import functools
from collections.abc import Callable
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core import kernels
from synth_mtf.core.positions import TableIndex
from synth_mtf.core.projections import Projections


class LayerCall:
  """One call of an attention layer: its input, dimensions and projections.

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
  ) -> None:
    self.context = context
    self.x = x
    self.projections = projections
    self.index = index
    self.memory_length = index.memory_length_dim
    self.heads: list[mtf.Dimension] = projections.query_heads_dims
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
      new: what comes from all tokens, [batch..., memory_length, ...]; in
        incremental decoding, from the current one, [batch..., ...].

    Returns:
      [batch..., memory_length, ...], in which incremental decoding finds the
      earlier tokens too.
    """
    context = self.context
    if context.mode == 'incremental':
      (earlier,) = context.get_states(1)
      new = kernels.put(new, earlier, self._here, self.memory_length)
    if context.mode in ('first_part', 'incremental'):
      context.record_new_states([new])
    return new

  @property
  def _here(self) -> mtf.Tensor:
    """Where decoding stands, bool over memory_length (and the batch)."""
    position = self.context.position

    def make() -> mtf.Tensor:
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

  def splits(self, dim: mtf.Dimension) -> bool:
    """Whether the mesh splits a dimension."""
    model = self.context.model
    return bool(model.layout and model.mesh_shape) and (
      mtf.tensor_dim_to_mesh_dim_size(model.layout, model.mesh_shape, dim) > 1
    )

  def with_input(self, x: mtf.Tensor) -> 'LayerCall':
    """The same call for a local function of another input of x's shape."""
    return LayerCall(
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
      dtype: type in which it is used; None stands for the activations' type.
      trainable: if False, it keeps its initial values, and so does the
        checkpoint.

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

  Nothing is shared where each layer is computed again, on its own, for its
  gradients.
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
