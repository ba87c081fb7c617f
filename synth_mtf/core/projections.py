"""T5's projections q, k, v and o, each made when it is first used."""

import functools
from collections.abc import Sequence
from typing import Any, Callable

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import (
  attention,
  transformer,
  transformer_layers,
)

# From factors and the shape of the result to the result.
Einsum = Callable[[Sequence[mtf.Tensor], mtf.Shape], mtf.Tensor]


class Projections(attention.AttentionParams):
  """The host's attention parameters, made only if they are used.

  The layer of a Random Synthesizer has neither queries nor keys, nor their
  variables. Names, shapes and initial distributions are the host's, so that a
  T5 checkpoint loads as it is.

  Attributes:
    einsum: multiplies tokens with weights; `mtf.einsum`, or equal to it.
  """

  def __init__(
    self, *args: Any, einsum: Einsum = mtf.einsum, **kwargs: Any
  ) -> None:
    super().__init__(*args, make_attention_vars=False, **kwargs)
    self.einsum = einsum

  @classmethod
  def of_layer(
    cls,
    layer: transformer_layers.SelfAttention,
    context: transformer.Context,
    einsum: Einsum = mtf.einsum,
  ) -> 'Projections':
    """The projections of a layer, in the current variable scope."""
    query_heads, memory_heads = _heads(layer.num_heads, layer.num_memory_heads)
    return cls(
      context.mesh,
      query_input_dim=context.model.model_dim,
      memory_input_dim=context.model.model_dim,
      output_dim=context.model.model_dim,
      key_dim=layer.kv_dim,
      value_dim=layer.kv_dim,
      query_heads_dims=query_heads,
      memory_heads_dims=memory_heads,
      variable_dtype=context.variable_dtype,
      shared_kv=layer.shared_kv,
      ensemble_dim=context.model.ensemble_dim,
      combine_dims=layer.combine_dims,
      keep_query_heads_dims=layer.keep_query_heads_dims,
      fold_scaling_into_initializer=layer.fold_scaling_into_initializer,
      einsum=einsum,
    )

  def compute_q(self, query_antecedent: mtf.Tensor) -> mtf.Tensor:
    """Q(X), [batch..., length, heads, d_kv]."""
    q = self._to_heads(query_antecedent, self.wq, self.q_dims)
    if self.fold_scaling_into_initializer:
      return q
    return q * self.key_dim.size**-0.5

  def keys(self, memory: mtf.Tensor) -> mtf.Tensor:
    """K(X), [batch..., memory_length, heads, d_kv]."""
    w = self.wkv if self.shared_kv else self.wk
    return self._to_heads(memory, w, self.k_dims)

  def values(self, memory: mtf.Tensor) -> mtf.Tensor:
    """G(X), [batch..., memory_length, heads, d_kv]."""
    w = self.wkv if self.shared_kv else self.wv
    return self._to_heads(memory, w, self.v_dims)

  def compute_output(
    self, o: mtf.Tensor, output_shape: mtf.Shape
  ) -> mtf.Tensor:
    """The output projection of [batch..., length, heads, d_kv]."""
    if self.combine_dims:
      o = mtf.transpose(o, o.shape - self.o_dims + self.o_dims)
      o = mtf.replace_dimensions(o, self.o_dims, self.wo.shape.dims[-2])
    return self._multiply(o, self.wo, output_shape)

  def _to_heads(
    self, x: mtf.Tensor, w: mtf.Tensor, dims: list[mtf.Dimension]
  ) -> mtf.Tensor:
    rows = x.shape.dims[:-1]
    new = [d for d in w.shape.dims if d not in x.shape.dims]
    y = self._multiply(x, w, mtf.Shape([*rows, *new]))
    return mtf.replace_dimensions(y, new, dims) if self.combine_dims else y

  def _multiply(
    self, x: mtf.Tensor, w: mtf.Tensor, shape: mtf.Shape
  ) -> mtf.Tensor:
    y = self.einsum([x, w], shape)
    if mtf.layers.unit_scaling_convention():
      y *= (x.shape - y.shape.dims).size ** -0.5
    return y

  @functools.cached_property
  def wq(self) -> mtf.Tensor:
    """The query projection."""
    stddev = self.query_input_dim.size**-0.5
    if self.fold_scaling_into_initializer:
      stddev *= self.key_dim.size**-0.5
    return self._weights('q', self.q_shape, stddev)

  @functools.cached_property
  def wk(self) -> mtf.Tensor:
    """The key projection."""
    return self._weights('k', self.k_shape, self.memory_input_dim.size**-0.5)

  @functools.cached_property
  def wv(self) -> mtf.Tensor:
    """The value projection."""
    return self._weights('v', self.v_shape, self.memory_input_dim.size**-0.5)

  @functools.cached_property
  def wkv(self) -> mtf.Tensor:
    """The one projection for keys and values, with `shared_kv`."""
    return self._weights('kv', self.k_shape, self.memory_input_dim.size**-0.5)

  def _weights(
    self, name: str, shape: list[mtf.Dimension], stddev: float
  ) -> mtf.Tensor:
    if mtf.layers.unit_scaling_convention():
      stddev = 1.0
    with tf.variable_scope(self._scope, auxiliary_name_scope=False):
      return mtf.get_variable(
        self.mesh,
        name,
        mtf.Shape(shape),
        initializer=tf.random_normal_initializer(stddev=stddev),
        dtype=self.variable_dtype,
      )

  def init_weights(self) -> None:
    """Makes o, and remembers the layer's scope for the others."""
    self._scope = tf.get_variable_scope()
    super().init_weights()


def _heads(
  num_heads: int, num_memory_heads: int
) -> tuple[list[mtf.Dimension], list[mtf.Dimension]]:
  """Head dimensions of the queries and of the memory, as the host has them."""
  if num_heads == 1:
    return [], []
  if num_memory_heads in (0, num_heads):
    heads = [mtf.Dimension('heads', num_heads)]
    return heads, heads
  if num_memory_heads == 1:
    return [mtf.Dimension('heads', num_heads)], []
  groups = [mtf.Dimension('heads', num_memory_heads)]
  return (
    groups + [mtf.Dimension('query_heads', num_heads // num_memory_heads)],
    groups,
  )
