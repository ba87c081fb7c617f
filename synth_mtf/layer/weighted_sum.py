"""Computes weighted values from alignment logits and visibility.

    Y = dropout(softmax(B)) G(X)

The softmax is over the visible part of `memory_length`; hidden logits get the
host's bias of -1e9. `plain_average` computes this as the paper writes it, and
`softmax_average` chooses the fastest way to the same result.
"""

import dataclasses
from collections.abc import Callable, Collection

import mesh_tensorflow as mtf

from synth_mtf.core.context import recomputes_layers
from synth_mtf.core.dimensions import arrange
from synth_mtf.core.gradients import recompute_in_backward
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, add, multiplied_out, needed, total
from synth_mtf.core.products import product, shared_product
from synth_mtf.core.softmax import centered_exp, divide, softmax
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
    return self._drop(values, {*self.broadcast_dims, call.kv_dim})

  def average(
    self, call: LayerCall, weights: mtf.Tensor, values: mtf.Tensor
  ) -> mtf.Tensor:
    """Computes dropout(W) G(X), [batch..., length, heads, d_kv]."""
    if self.per_key(call):
      values = self.drop_values(values, call)
    else:
      weights = mtf.broadcast(weights, call.local)
      weights = self._drop(weights, set(self.broadcast_dims))
    weights = mtf.cast(weights, values.dtype)
    d_kv = values.shape.dims[-1]
    shape = mtf.Shape([*call.batch, *call.length, *call.heads, d_kv])
    return product(weights, values, shape)

  def _drop(self, x: mtf.Tensor, shared: set[mtf.Dimension]) -> mtf.Tensor:
    """Drops entries of x; those along shared dimensions share a decision."""
    return mtf.dropout(
      x,
      is_training=True,
      rate=self.rate,
      noise_shape=mtf.Shape([d for d in x.shape.dims if d not in shared]),
    )


def plain_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: UseLogZ | None = None,
) -> mtf.Tensor:
  """Computes Y = softmax(B) G(X) (eq. 3), one operation after the other.

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
  biases = visibility.biases(call.logits_dtype)
  b = total(call, add(call, [*logits.terms, *biases]))
  b = arrange(b, call.local)
  if use_log_z:
    use_log_z(mtf.reduce_logsumexp(b, call.memory_length))
  if call.splits(call.memory_length):
    weights = mtf.cast(mtf.softmax(b, call.memory_length), values.dtype)
  else:
    weights = softmax(b, call.memory_length, values.dtype)
  y = dropout.average(call, weights, values)
  return zero_hidden(y, visibility.queries)


def softmax_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: UseLogZ | None = None,
) -> mtf.Tensor:
  """Computes what `plain_average` does, in the fastest way for this call.

  On a CPU, tile by tile (`cpu.attention`). If all examples share their weights,
  with one set of exponentials for the whole batch. Otherwise as it is written,
  which XLA fuses on a TPU.
  """
  drops_values = dropout.per_key(call)
  is_shared = drops_values and _shares_weights(call, logits, visibility)
  is_tiled = drops_values and can_attend(call, logits, values)
  if is_tiled and use_log_z is None:
    attend = attend_shared if is_shared else attend_each
    values = dropout.drop_values(values, call)
    y = attend(call, logits, visibility, values)
    return zero_hidden(y, visibility.queries)
  if is_shared:
    return _batch_shared_average(
      call, logits, visibility, values, dropout, use_log_z
    )
  return plain_average(call, logits, visibility, values, dropout, use_log_z)


def _shares_weights(
  call: LayerCall, logits: Logits, visibility: Visibility
) -> bool:
  """Whether all examples have the same B, and the same hidden pairs."""
  if logits.local or call.splits(call.memory_length):
    return False
  pairs = visibility.pairs
  return pairs is None or set(pairs.shape.dims) <= set(call.shared)


def _batch_shared_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: UseLogZ | None,
) -> mtf.Tensor:
  """Computes `plain_average` if all examples share their logits.

      E = exp(B - c), 0 where hidden
      Y = (E (keep * V)) / (E nonpad)

  c is the center of each row of B, keep the dropout mask over keys, and nonpad
  the padding mask. This equals masked softmax and dropout, because values at
  padding are 0. The exponentials are computed once for the whole batch, and
  nothing of size [batch, heads, length, memory_length] is materialized.
  """
  nonpad = visibility.keys
  values = dropout.drop_values(zero_hidden(values, nonpad), call)
  rows = mtf.Shape([*call.batch, *call.length, *call.heads])

  def sums() -> tuple[mtf.Tensor, ...]:
    """Returns E (keep * V), E nonpad and c."""
    terms = [multiplied_out(call, term) for term in logits.shared]
    e, center = centered_exp(terms, mtf.Shape(call.shared), visibility.pairs)
    numerator = shared_product(
      e, values, call.batch, call.length, call.heads, call.context.train
    )
    if nonpad is None:
      denominator = mtf.reduce_sum(e, reduced_dim=call.memory_length)
    else:
      present = {*e.shape.dims, *nonpad.shape.dims}
      denominator = mtf.einsum(
        [e, mtf.cast(nonpad, e.dtype)],
        mtf.Shape([d for d in rows if d in present]),
      )
    return numerator, arrange(denominator, rows), center

  # A layer that the host recomputes must not contain its own recomputation.
  if call.context.train and not recomputes_layers(call.context):
    results = recompute_in_backward(sums, needed(logits.shared))
  else:
    results = sums()
  numerator, denominator, center = results
  if use_log_z:
    # A query that sees only padding has a denominator of 0.
    is_zero = mtf.cast(mtf.equal(denominator, 0.0), denominator.dtype)
    use_log_z(mtf.log(denominator + is_zero) + center)
  return divide(numerator, zero_hidden(denominator, visibility.queries))


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
