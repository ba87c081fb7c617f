"""Vanilla: the query-key dot product as a synthesizing function."""

import dataclasses

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import InnerProduct, weighted
from synth_mtf.synthesizers.base import SynthesizingFunction


@gin.configurable(module='synth_mtf')
@dataclasses.dataclass(eq=False)
class DotProduct(SynthesizingFunction):
  """V, S(X) = Q(X) K(X)^T (arXiv 2005.00743, section 3.2; 1706.03762).

  Queries and keys are T5's. There is no division by sqrt(d_kv), since T5 folds
  it into the initializer of q. `q` and `k` are variables of the layer itself,
  under the host's names.

  Args:
    trainable: False keeps the initial values of q and k, which are part of the
      checkpoint: attention with frozen queries and keys (arXiv 2506.01115).
      They are then also frozen for what else reads the layer's queries: D with
      `shared_query`, and contextual relative positions.
  """

  trainable: bool = True

  last_factors = ('q',)
  layer_variables = ('q', 'k')

  @property
  def letter(self) -> str:
    return 'V' if self.trainable else 'FrozenV'

  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> InnerProduct:
    """Q K^T: [..., length, heads, d_kv] x [..., memory_length, heads, d_kv]."""
    q = mtf.cast(call.queries, call.logits_dtype)
    k = mtf.cast(call.keys, call.logits_dtype)
    return InnerProduct(weighted(q, alpha), k, call.kv_dim)
