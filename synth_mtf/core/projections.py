"""T5's projections q, k, v and o, each created on first use."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import (
  attention,
  transformer,
  transformer_layers,
)


class Projections(attention.AttentionParams):
  """The host's attention parameters, created on first use.

  A Random Synthesizer therefore has no variables for queries and keys. Names,
  shapes and initial distributions match the host's, so that T5 checkpoints load
  unchanged.
  """

  def __init__(
    self,
    layer: transformer_layers.SelfAttention,
    context: transformer.Context,
    einsum: Callable[
      [Sequence[mtf.Tensor], mtf.Shape], mtf.Tensor
    ] = mtf.einsum,
    frozen: Collection[str] = (),
    value_bias: bool = False,
  ) -> None:
    """Prepares a layer's projections in the current variable scope.

    Args:
      layer: has the sizes.
      context: of the call.
      einsum: multiplies tokens by weights; must agree with `mtf.einsum`.
      frozen: names of weights that keep their initial values.
      value_bias: whether values have a bias, `v_bias`, [heads, d_kv].
    """
    self.einsum = einsum
    self._scope = tf.get_variable_scope()
    self._made: dict[str, mtf.Tensor] = {}
    self._frozen = frozen
    self._value_bias = value_bias
    self._ensemble = context.model.ensemble_dims
    query_heads, memory_heads = _heads(layer.num_heads, layer.num_memory_heads)
    super().__init__(
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
      fold_scaling_into_initializer=layer.fold_scaling_into_initializer,
      make_attention_vars=False,
    )

  def compute_q(self, query_antecedent: mtf.Tensor) -> mtf.Tensor:
    scale = self.key_dim.size**-0.5
    stddev = self.query_input_dim.size**-0.5
    if self.fold_scaling_into_initializer:
      stddev *= scale
    w = self._weights('q', self.q_shape, stddev)
    q = self._to_heads(query_antecedent, w, self.q_dims)
    return q if self.fold_scaling_into_initializer else q * scale

  def keys(self, memory: mtf.Tensor) -> mtf.Tensor:
    return self._of_memory('k', memory)

  def values(self, memory: mtf.Tensor) -> mtf.Tensor:
    values = self._of_memory('v', memory)
    if not self._value_bias:
      return values
    dims = [*self._ensemble, *self.memory_heads_dims, self.value_dim]
    bias = self._variable('v_bias', dims, tf.zeros_initializer())
    return mtf.add(values, bias, output_shape=values.shape)

  def compute_output(
    self, o: mtf.Tensor, output_shape: mtf.Shape
  ) -> mtf.Tensor:
    if self.combine_dims:
      o = mtf.transpose(o, o.shape - self.o_dims + self.o_dims)
      o = mtf.replace_dimensions(o, self.o_dims, self.wo.shape.dims[-2])
    return self._multiply(o, self.wo, output_shape)

  def _of_memory(self, name: str, memory: mtf.Tensor) -> mtf.Tensor:
    if self.shared_kv:
      name = 'kv'
    stddev = self.memory_input_dim.size**-0.5
    w = self._weights(name, self.k_shape, stddev)
    return self._to_heads(memory, w, self.k_dims)

  def _to_heads(
    self, x: mtf.Tensor, w: mtf.Tensor, dims: list[mtf.Dimension]
  ) -> mtf.Tensor:
    new = [d for d in w.shape.dims if d not in x.shape.dims]
    y = self._multiply(x, w, mtf.Shape([*x.shape.dims[:-1], *new]))
    if self.combine_dims:
      y = mtf.replace_dimensions(y, new, dims)
    return y

  def _multiply(
    self, x: mtf.Tensor, w: mtf.Tensor, shape: mtf.Shape
  ) -> mtf.Tensor:
    y = self.einsum([x, w], shape)
    if mtf.layers.unit_scaling_convention():
      y *= (x.shape - y.shape.dims).size ** -0.5
    return y

  def _weights(
    self, name: str, shape: list[mtf.Dimension], stddev: float
  ) -> mtf.Tensor:
    """Returns a variable in the layer's scope, created on first use."""
    if name not in self._made:
      if mtf.layers.unit_scaling_convention():
        stddev = 1.0
      initializer = tf.random_normal_initializer(stddev=stddev)
      self._made[name] = self._variable(name, shape, initializer)
    return self._made[name]

  def _variable(
    self, name: str, shape: list[mtf.Dimension], initializer: Any
  ) -> mtf.Tensor:
    """Creates a variable in the layer's scope."""
    with tf.variable_scope(self._scope, auxiliary_name_scope=False):
      return mtf.get_variable(
        self.mesh,
        name,
        mtf.Shape(shape),
        initializer=initializer,
        trainable=name not in self._frozen,
        dtype=self.variable_dtype,
      )


def _heads(
  num_heads: int, num_memory_heads: int
) -> tuple[list[mtf.Dimension], list[mtf.Dimension]]:
  """Returns the head dimensions of queries and memory, as in the host."""
  num_written_heads = num_memory_heads or num_heads
  written = mtf.Dimension('heads', num_written_heads)
  memory = [written] if written.size > 1 else []
  if num_written_heads == num_heads:
    return memory, memory
  name = 'query_heads' if memory else 'heads'
  return [*memory, mtf.Dimension(name, num_heads // num_written_heads)], memory
