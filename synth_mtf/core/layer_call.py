"""One call of an attention layer."""

import dataclasses
import functools
from collections.abc import Callable

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf
from mesh_tensorflow.transformer import transformer

from synth_mtf.core.dimensions import parts
from synth_mtf.core.memory import Memory
from synth_mtf.core.positions import TableIndex
from synth_mtf.core.projections import Projections


@dataclasses.dataclass(eq=False)
class LayerCall:
  """One call of an attention layer: its input, dimensions and projections.

  Attributes:
    context: the host's `transformer.Context`.
    x: the input, [batch..., length, d_model]; [batch..., d_model] in
      incremental decoding.
    projections: the layer's q, k, v and o.
    index: reads tables at the positions of the queries and keys.
    memory: projects the tokens that queries attend to.
    memory_length: Dimension, the number of keys.
    kv_dim: Dimension, `d_kv` of the layer.
    logits_dtype: type of the alignment logits (float32 by default, even if
      activations are bfloat16, as in the host).
  """

  context: transformer.Context
  x: mtf.Tensor
  projections: Projections
  index: TableIndex
  memory: Memory
  memory_length: mtf.Dimension
  kv_dim: mtf.Dimension
  logits_dtype: tf.DType

  @functools.cached_property
  def queries(self) -> mtf.Tensor:
    """Q(X), [batch..., length, heads, d_kv]."""
    return self.projections.compute_q(self.x)

  @functools.cached_property
  def keys(self) -> mtf.Tensor:
    """K(X), [batch..., memory_length, heads, d_kv]."""
    if self.projections.shared_kv:
      return self.values
    return self.memory(self.projections.keys)

  @functools.cached_property
  def values(self) -> mtf.Tensor:
    """G(X), [batch..., memory_length, heads, d_kv]."""
    return self.memory(self.projections.values)

  @property
  def heads(self) -> list[mtf.Dimension]:
    """The head dimensions; empty for a single head."""
    return self.projections.query_heads_dims

  @property
  def length(self) -> list[mtf.Dimension]:
    """[length], or [] in incremental decoding."""
    return [d for d in self.x.shape.dims if d == self.context.length_dim]

  @property
  def batch(self) -> list[mtf.Dimension]:
    """The batch dimensions of x, including `ensemble`."""
    return [d for d in self.x.shape.dims[:-1] if d not in self.length]

  @property
  def shared(self) -> list[mtf.Dimension]:
    """All dimensions that logits without a batch dimension may have."""
    ensemble = self.context.model.ensemble_dims
    return [*ensemble, *self.heads, *self.length, self.memory_length]

  @property
  def local(self) -> mtf.Shape:
    """[batch..., heads, length, memory_length]."""
    return mtf.Shape(
      [*self.batch, *self.heads, *self.length, self.memory_length]
    )

  def splits(self, dim: mtf.Dimension) -> bool:
    return self.parts(dim) > 1

  def parts(self, dim: mtf.Dimension) -> int:
    return parts(dim, self.context.model)

  def variable(
    self,
    name: str,
    dims: list[mtf.Dimension],
    stddev: float,
    dtype: tf.DType | None = None,
    trainable: bool = True,
    initializer: Callable[..., tf.Tensor] | None = None,
  ) -> mtf.Tensor:
    """Creates a variable in the current variable scope.

    Args:
      name: its name in the checkpoint.
      dims: its dimensions; an ensemble adds its own in front.
      stddev: standard deviation of the initial values, normally distributed.
      dtype: type used in computations; None stands for the activation type.
      trainable: if False, it keeps its initial values, which are part of the
        checkpoint.
      initializer: draws the initial values, in place of `stddev`.
    """
    if initializer is None:
      initializer = tf.random_normal_initializer(stddev=stddev)
    types = self.context.variable_dtype
    return mtf.get_variable(
      self.context.mesh,
      name,
      mtf.Shape(self.context.model.ensemble_dims + dims),
      initializer=initializer,
      trainable=trainable,
      dtype=mtf.VariableDType(
        types.master_dtype, types.slice_dtype, dtype or types.activation_dtype
      ),
    )
