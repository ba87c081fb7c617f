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
from synth_mtf.core.dimensions import arrange, fuses_products, is_tpu
from synth_mtf.core.gradients import recompute_in_backward
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import (
  InnerProduct,
  Logits,
  OuterProduct,
  add,
  multiplied_after,
  multiplied_out,
  needed,
  tables_added_last,
  total,
  total_in_blocks,
)
from synth_mtf.core.products import product, shared_product
from synth_mtf.core.softmax import (
  centered_exp,
  divide,
  exp_and_sum,
  nan_if_clipped,
  softmax,
)
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
  with one set of exponentials for the whole batch. On a TPU, with few passes
  over memory. Otherwise as it is written.
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
  if drops_values and _is_cheap_to_repeat_on_tpu(call, logits):
    return _average_on_tpu(call, logits, visibility, values, dropout, use_log_z)
  return plain_average(call, logits, visibility, values, dropout, use_log_z)


def _shares_weights(
  call: LayerCall, logits: Logits, visibility: Visibility
) -> bool:
  """Whether all examples have the same B, and the same hidden pairs."""
  if logits.local or call.splits(call.memory_length):
    return False
  pairs = visibility.pairs
  return pairs is None or set(pairs.shape.dims) <= set(call.shared)


def _is_cheap_to_repeat_on_tpu(call: LayerCall, logits: Logits) -> bool:
  """Whether a TPU fuses all logits of an example with what reads them.

  It does so with one product, but keeps a table that was read at each example's
  positions, and the sum of an outer product and others.
  """
  if not is_tpu(call.x.mesh) or not call.length:
    return False
  if call.splits(call.memory_length):
    return False
  products = InnerProduct, OuterProduct
  return len(logits.local) <= 1 and all(
    isinstance(term, products) for term in logits.local
  )


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

  One set of exponentials cannot represent an example whose logits are all some
  125 or more below one at padding, in a row that spans more than 150. Its Y is
  NaN. Otherwise Y and its gradients are exact, though E^T (dY / T) may overflow
  at padding: `zero_hidden` drops it.
  """
  nonpad = visibility.keys
  values = dropout.drop_values(zero_hidden(values, nonpad), call)
  rows = mtf.Shape([*call.batch, *call.length, *call.heads])

  def sums() -> tuple[mtf.Tensor, ...]:
    """Returns E (keep * V), E nonpad, and what else `centered_exp` returns."""
    terms = [multiplied_out(call, term) for term in logits.shared]
    e, center, least = centered_exp(
      terms, mtf.Shape(call.shared), visibility.pairs
    )
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
    return numerator, arrange(denominator, rows), center, least

  # A layer that the host recomputes must not contain its own recomputation.
  if call.context.train and not recomputes_layers(call.context):
    results = recompute_in_backward(sums, needed(logits.shared))
  else:
    results = sums()
  numerator, denominator, center, least = results
  # First, so that no sum of a padding query is found to be inexact.
  denominator = zero_hidden(denominator, visibility.queries)
  denominator = nan_if_clipped(denominator, least)
  if use_log_z:
    # The denominator of padding is 0.
    is_zero = mtf.cast(mtf.equal(denominator, 0.0), denominator.dtype)
    use_log_z(mtf.log(denominator + is_zero) + center)
  return divide(numerator, denominator)


def _average_on_tpu(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: UseLogZ | None,
) -> mtf.Tensor:
  """Computes `plain_average` with few passes over memory.

      c = max_m B     E = exp(B - c)     T = sum_m E
      Y = (E (keep * V)) / T

  B is multiplied out twice, for c and for E, where XLA fuses each product with
  what reads it. Of its size only E is kept, rounded to the type of V. With
  an outer product, B and E have the keys before the queries, and B has them in
  blocks: XLA would materialize B to make one row of the blocks.
  """
  values = dropout.drop_values(values, call)
  logits = add(call, [*logits.terms, *visibility.biases(call.logits_dtype)])
  logits = tables_added_last(logits)
  rows = mtf.Shape([*call.batch, *call.heads, *call.length])

  def multiplied(logits: Logits) -> mtf.Tensor:
    for term in logits.local:
      if isinstance(term, OuterProduct):
        return total_in_blocks(call, logits, term.blocks)
    return arrange(total(call, logits), call.local)

  b = multiplied(logits)
  center = mtf.stop_gradient(mtf.reduce_max(b, output_shape=rows))
  if fuses_products(call.x.mesh):
    b = multiplied(multiplied_after(center, logits))
  e, denominator = exp_and_sum(b, center, call.memory_length, values.dtype)
  rows = mtf.Shape([*call.batch, *call.length, *call.heads])
  numerator = product(e, values, mtf.Shape([*rows.dims, call.kv_dim]))
  if use_log_z:
    use_log_z(mtf.log(denominator) + center)
  y = divide(numerator, mtf.transpose(denominator, rows))
  return zero_hidden(y, visibility.queries)


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
