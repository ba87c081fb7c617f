"""From alignment logits and visibility to weighted values.

    Y = dropout(softmax(B)) G(X)

over `memory_length`, restricted to what is visible. There are two ways to
compute it, which agree; the dimensions of the logits say which one applies:

  batch_shared   B has no batch dimension. Exponentials are taken once for the
                 whole batch, padding enters the two products with them, and
                 nothing of size [batch, heads, length, memory_length] is made.
  general        anything else.
"""

from typing import Optional, Protocol

import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Logits, total
from synth_mtf.core.visibility import Visibility
from synth_mtf.layer import batch_shared, general
from synth_mtf.layer.dropout import Dropout
from synth_mtf.layer.parts import UseLogZ, at, product


class Average(Protocol):
  """A way from logits and values to Y."""

  def __call__(
    self,
    call: LayerCall,
    logits: Logits,
    visibility: Visibility,
    values: mtf.Tensor,
    dropout: Dropout,
    use_log_z: Optional[UseLogZ] = None,
  ) -> mtf.Tensor:
    """Returns Y; see `softmax_average`."""


def softmax_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ] = None,
) -> mtf.Tensor:
  """softmax(B) G(X) (eq. 3).

  Args:
    call: the layer call.
    logits: B.
    visibility: what takes part in the softmax.
    values: G(X), [batch..., memory_length, heads, d_kv].
    dropout: dropout of the weights.
    use_log_z: if given, is called with the logarithm of the softmax's
      denominator, [batch..., heads, length].

  Returns:
    Y, [batch..., length, heads, d_kv], 0 at padding.
  """
  way = (
    general
    if _depends_on_batch(call, logits, visibility, dropout)
    else (batch_shared)
  )
  return way.average(call, logits, visibility, values, dropout, use_log_z)


def unnormalized_average(
  call: LayerCall,
  logits: Logits,
  visibility: Visibility,
  values: mtf.Tensor,
  dropout: Dropout,
  use_log_z: Optional[UseLogZ] = None,
) -> mtf.Tensor:
  """B G(X): the logits themselves are the weights, as in an MLP-Mixer.

  Arguments and result are those of `softmax_average`.
  """
  del use_log_z  # there is no denominator
  weights = at(visibility.pairs, total(call, logits))
  values = at(visibility.keys, values)
  if dropout.per_key(call):
    values = dropout.of_values(values, call)
  else:
    weights = dropout.of_weights(mtf.broadcast(weights, call.local))
  return at(visibility.queries, product(call, weights, values))


NORMALIZATIONS: dict[Optional[str], Average] = {
  'softmax': softmax_average,
  None: unnormalized_average,
}


def _depends_on_batch(
  call: LayerCall, logits: Logits, visibility: Visibility, dropout: Dropout
) -> bool:
  """Whether the attention weights differ from example to example."""
  pairs = visibility.pairs
  return not (
    not logits.local
    and (pairs is None or set(pairs.shape.dims) <= set(call.shared))
    and dropout.per_key(call)
    and not call.splits(call.memory_length)
  )
