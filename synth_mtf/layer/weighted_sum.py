"""Computes weighted values from alignment logits and visibility.

    Y = dropout(softmax(B)) G(X)

The softmax is over the visible part of `memory_length`; hidden logits get the
host's bias of -1e9. If B has no batch dimension, the exponentials are computed
once for the whole batch: the two products that use them apply the padding mask,
and nothing of size [batch, heads, length, memory_length] is materialized. On a
CPU, `cpu.attend_each` and `attend_shared` compute the same in tiles.
"""

import dataclasses
from collections.abc import Callable, Collection

import mesh_tensorflow as mtf

from synth_mtf.core import kernels
from synth_mtf.core.context import recomputes_layers
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, add, multiplied_out, needed, total
from synth_mtf.core.visibility import Visibility, zero_hidden
from synth_mtf.cpu.attention import attend_each, attend_shared, can_attend

# Called with log Z, [batch..., heads, length]; Z is the softmax's denominator.
UseLogZ = Callable[[mtf.Tensor], None]


@dataclasses.dataclass(frozen=True)
class Dropout:
  """Dropout of the attention weights.

  T5 draws one decision per key and head and shares it among the queries, so
  that it can be applied to the values instead of the weights.

  Attributes:
    rate: probability of dropping; 0 outside training.
    broadcast_dims: dimensions that share one decision.
  """

  rate: float
  broadcast_dims: Collection[mtf.Dimension]

  def per_key(self, call: LayerCall) -> bool:
    return self.rate == 0 or set(call.length) <= set(self.broadcast_dims)

  def drop_values(self, values: mtf.Tensor, call: LayerCall) -> mtf.Tensor:
    """Drops values per key and head: [..., memory_length, heads, d_kv]."""
    if self.rate == 0:
      return values
    others = values.shape.dims[:-1]
    missing = [d for d in call.heads if d not in others]
    values = mtf.broadcast(values, mtf.Shape([*others, *missing, call.kv_dim]))
    return self._dropout(values, {*self.broadcast_dims, call.kv_dim})

  def average(
    self, call: LayerCall, weights: mtf.Tensor, values: mtf.Tensor
  ) -> mtf.Tensor:
    """Computes dropout(W) G(X), [batch..., length, heads, d_kv]."""
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


def softmax_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: UseLogZ | None = None,
) -> mtf.Tensor:
  """Computes softmax(B) G(X) (eq. 3).

  Args:
    call: the layer call.
    logits: B.
    visibility: the pairs that take part in the softmax.
    values: G(X), [batch..., memory_length, heads, d_kv].
    dropout: dropout of the weights.
    use_log_z: if given, called with the logarithm of the softmax's
      denominator, [batch..., heads, length].

  Returns:
    Y, [batch..., length, heads, d_kv], 0 at padding.
  """
  pairs = visibility.pairs
  shares_weights = (
    not logits.local
    and (pairs is None or set(pairs.shape.dims) <= set(call.shared))
    and dropout.per_key(call)
    and not call.splits(call.memory_length)
  )
  if (
    use_log_z is None
    and dropout.per_key(call)
    and can_attend(call, logits, values)
  ):
    attend = attend_shared if shares_weights else attend_each
    values = dropout.drop_values(values, call)
    y = attend(call, logits, visibility, values)
    return zero_hidden(y, visibility.queries)
  if shares_weights:
    return _batch_shared_average(
      call, logits, visibility, values, dropout, use_log_z
    )
  biases = visibility.biases(call.logits_dtype)
  b = arrange(total(call, add(call, [*logits.terms, *biases])), call.local)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, call.memory_length))
  if call.splits(call.memory_length):
    weights = mtf.cast(mtf.softmax(b, call.memory_length), values.dtype)
  else:
    weights = kernels.softmax(b, call.memory_length, values.dtype)
  y = dropout.average(call, weights, values)
  return zero_hidden(y, visibility.queries)


def _batch_shared_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: UseLogZ | None,
) -> mtf.Tensor:
  """Computes `softmax_average` if all examples share their logits.

      E = exp(B - c), 0 where hidden
      Y = (E (keep * V)) / (E nonpad)

  c is the center of each row of B, keep the dropout mask over keys, and nonpad
  the padding mask. This equals masked softmax and dropout, because values at
  padding are 0.
  """
  nonpad = visibility.keys
  values = dropout.drop_values(zero_hidden(values, nonpad), call)
  rows = mtf.Shape(call.batch + call.length + call.heads)

  def sums() -> tuple[mtf.Tensor, ...]:
    e, center = kernels.centered_exp(
      [multiplied_out(call, term) for term in logits.shared],
      mtf.Shape(call.shared),
      visibility.pairs,
    )
    y = kernels.shared_product(
      e,
      values,
      batch=call.batch,
      length=call.length,
      heads=call.heads,
      train=call.context.train,
    )
    if nonpad is None:
      total = mtf.reduce_sum(e, reduced_dim=call.memory_length)
    else:
      present = {*e.shape.dims, *nonpad.shape.dims}
      total = mtf.einsum(
        [e, mtf.cast(nonpad, e.dtype)],
        mtf.Shape([d for d in rows if d in present]),
      )
    return y, arrange(total, rows), center

  # A layer that the host recomputes must not contain its own recomputation.
  if call.context.train and not recomputes_layers(call.context):
    y, total, center = kernels.recompute_in_backward(
      sums, needed(logits.shared)
    )
  else:
    y, total, center = sums()
  if use_log_z:
    is_zero = mtf.cast(mtf.equal(total, 0.0), total.dtype)  # sees only padding
    use_log_z(mtf.log(total + is_zero) + center)
  return kernels.divide(y, zero_hidden(total, visibility.queries))


def unnormalized_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
) -> mtf.Tensor:
  """Computes B G(X), with logits as weights, as in an MLP-Mixer."""
  weights = zero_hidden(total(call, logits), visibility.pairs)
  values = zero_hidden(values, visibility.keys)
  y = dropout.average(call, weights, values)
  return zero_hidden(y, visibility.queries)
