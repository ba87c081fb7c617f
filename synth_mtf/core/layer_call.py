"""One call of an attention layer."""

import functools
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.dimensions import parts
from synth_mtf.core.memory import Memory
from synth_mtf.core.positions import TableIndex
from synth_mtf.core.projections import Projections


class LayerCall:
  """One call of an attention layer: its input, dimensions and projections.

  Attributes:
    context: the host's `transformer.Context`.
    x: the input, [batch..., length, d_model]; [batch..., d_model] in
      incremental decoding.
    memory: the tokens attended to.
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
    memory: Memory,
    kv_dim: mtf.Dimension,
    logits_dtype: tf.DType,
  ) -> None:
    self.context = context
    self.x = x
    self.projections = projections
    self.index = index
    self.memory = memory
    self.memory_length = index.memory_length_dim
    self.heads: list[mtf.Dimension] = projections.query_heads_dims
    self.kv_dim = kv_dim
    self.logits_dtype = logits_dtype

  @functools.cached_property
  def queries(self) -> mtf.Tensor:
    """Q(X), [batch..., length, heads, d_kv]."""
    return self.projections.compute_q(self.x)

  @functools.cached_property
  def keys(self) -> mtf.Tensor:
    """K(X), [batch..., memory_length, heads, d_kv]."""
    if self.projections.shared_kv:
      return self.values
    return self.memory.project(self.projections.keys)

  @functools.cached_property
  def values(self) -> mtf.Tensor:
    """G(X), [batch..., memory_length, heads, d_kv]."""
    return self.memory.project(self.projections.values)

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
    return self.parts(dim) > 1

  def parts(self, dim: mtf.Dimension) -> int:
    """Into how many parts the mesh splits a dimension."""
    return parts(dim, self.context.model)

  def with_input(self, x: mtf.Tensor) -> 'LayerCall':
    """The same call, with another input of x's shape."""
    return LayerCall(
      self.context,
      x,
      self.projections,
      self.index,
      self.memory,
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
