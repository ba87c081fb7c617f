"""Dropout of the attention weights, and their product with the values.

T5 draws one decision per key and head and shares it among the queries, so that
dropout of the weights is a factor on the values.
"""

import dataclasses
from collections.abc import Collection

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.layer_call import LayerCall


@dataclasses.dataclass(frozen=True)
class Dropout:
  """Dropout of the attention weights.

  Attributes:
    rate: probability of dropping; 0 outside training.
    broadcast_dims: dimensions that share one decision.
  """

  rate: float
  broadcast_dims: Collection[mtf.Dimension]

  def per_key(self, call: LayerCall) -> bool:
    return self.rate == 0 or set(call.length) <= set(self.broadcast_dims)

  def drop_values(self, values: mtf.Tensor, call: LayerCall) -> mtf.Tensor:
    """Drops keys of each head: [..., memory_length, heads, d_kv]."""
    if self.rate == 0:
      return values
    missing = [d for d in call.heads if d not in values.shape.dims]
    if missing:
      values = mtf.broadcast(
        values, mtf.Shape(values.shape.dims[:-1] + missing + [call.kv_dim])
      )
    return self._dropout(values, {*self.broadcast_dims, call.kv_dim})

  def average(
    self, call: LayerCall, weights: mtf.Tensor, values: mtf.Tensor
  ) -> mtf.Tensor:
    """dropout(W) G(X), [batch..., length, heads, d_kv]."""
    if self.per_key(call):
      values = self.drop_values(values, call)
    else:
      weights = mtf.broadcast(weights, call.local)
      weights = self._dropout(weights, set(self.broadcast_dims))
    return kernels.product(
      mtf.cast(weights, values.dtype),
      values,
      mtf.Shape(call.batch + call.length + call.heads + values.shape.dims[-1:]),
    )

  def _dropout(self, x: mtf.Tensor, shared: set[mtf.Dimension]) -> mtf.Tensor:
    return mtf.dropout(
      x,
      is_training=True,
      rate=self.rate,
      noise_shape=mtf.Shape([d for d in x.shape.dims if d not in shared]),
    )
