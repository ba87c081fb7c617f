"""Vanilla: the query-key dot product as a synthesizing function."""

from typing import Optional

import gin
import mesh_tensorflow as mtf

from synth_mtf.synthesizers.base import (
  InnerProduct,
  Site,
  SynthesizingFunction,
  weighted,
)


@gin.configurable(module='synth_mtf')
class DotProduct(SynthesizingFunction):
  """V, S(X) = Q(X) K(X)^T (arXiv 2005.00743, section 3.2; 1706.03762).

  Queries and keys are T5's: there is no division by sqrt(d_kv), since T5 folds
  it into the initial q. `q` and `k` are variables of the layer itself, under
  the host's names.
  """

  def logits(self, site: Site, alpha: Optional[mtf.Tensor]) -> InnerProduct:
    """Q K^T: [..., length, heads, d_kv] x [..., memory_length, heads, d_kv]."""
    q = mtf.cast(site.queries, site.logits_dtype)
    k = mtf.cast(site.keys, site.logits_dtype)
    return InnerProduct(weighted(q, alpha), k, site.kv_dim)
