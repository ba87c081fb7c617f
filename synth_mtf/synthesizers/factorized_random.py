"""Factorized Random: a learned matrix of low rank."""

import dataclasses

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import InnerProduct, weighted
from synth_mtf.synthesizers.base import Table


@gin.configurable(module='synth_mtf')
@dataclasses.dataclass(eq=False)
class FactorizedRandom(Table):
  """FR, S(X) = R1 R2^T with R1, R2 in R^(N x k) (eq. 7).

  Each head has its own pair. In cross-attention R2 is in R^(M x k). R1 R2^T
  initially has unit variance, like R.

  Args:
    rank: k; the paper uses 8.

  The other arguments are those of `Table`; with a `tile_length` of b, R2 has b
  rows, which repeat over the sequence.
  """

  rank: int = 8

  letter = 'FR'
  last_factors = ('R2',)
  position_axes = {'R1': (-2,), 'R2': (-2,)}

  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> InnerProduct:
    self.check_lengths(call)
    k = mtf.Dimension('rank', self.rank)
    stddev = self.rank**-0.25
    dtype = call.logits_dtype
    r1 = call.variable('R1', [*call.heads, self.rows_dim, k], stddev, dtype)
    r2 = call.variable('R2', [*call.heads, self.columns_dim, k], stddev, dtype)
    rows = weighted(call.index.rows(r1), alpha)
    return InnerProduct(rows, call.index.columns(r2), k)
