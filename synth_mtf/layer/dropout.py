"""Dropout of the attention weights.

T5 draws one decision for each key and head and shares it among the queries:
dropout of the weights is then a factor on the values.
"""

import dataclasses
from collections.abc import Collection

import mesh_tensorflow as mtf

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
    """Whether all queries share their decisions."""
    return self.rate == 0 or set(call.length) <= set(self.broadcast_dims)

  def of_values(self, values: mtf.Tensor, call: LayerCall) -> mtf.Tensor:
    """The factor of each key and head, on [..., memory_length, heads, d_kv]."""
    if self.rate == 0:
      return values
    missing = [d for d in call.heads if d not in values.shape.dims]
    if missing:
      values = mtf.broadcast(
        values, mtf.Shape(values.shape.dims[:-1] + missing + [call.kv_dim])
      )
    return self._dropout(values, [call.kv_dim])

  def of_weights(self, weights: mtf.Tensor) -> mtf.Tensor:
    """Dropout of [..., heads, length, memory_length] itself."""
    return self._dropout(weights, [])

  def _dropout(
    self, x: mtf.Tensor, shared_dims: Collection[mtf.Dimension]
  ) -> mtf.Tensor:
    shared = {*self.broadcast_dims, *shared_dims}
    return mtf.dropout(
      x,
      is_training=True,
      rate=self.rate,
      noise_shape=mtf.Shape([d for d in x.shape.dims if d not in shared]),
    )
