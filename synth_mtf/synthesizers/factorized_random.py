"""Factorized Random: a learned matrix of low rank."""

from typing import Optional

import gin
import mesh_tensorflow as mtf

from synth_mtf.synthesizers.base import InnerProduct, Site, Table, weighted


@gin.configurable(module='synth_mtf')
class FactorizedRandom(Table):
  """FR, S(X) = R1 R2^T with R1, R2 in R^(N x k) (eq. 7, section 3.1.4).

  One pair for each head. R1 R2^T starts with unit variance, as R does.
  """

  def __init__(
    self,
    rank: int = 8,
    max_length: Optional[int] = None,
    tile_length: Optional[int] = None,
  ):
    """Creates a Factorized Random synthesizing function.

    Args:
      rank: k; the paper uses 8.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      tile_length: b <= N: R2 has b rows, tiled to the length.

    Raises:
      ConfigurationError: if a size does not fit.
    """
    super().__init__(max_length, tile_length)
    self.require_positive('rank', rank)
    self.rank = rank

  def logits(self, site: Site, alpha: Optional[mtf.Tensor]) -> InnerProduct:
    """[heads, length, k] x [heads, memory_length, k]."""
    self.check_length(site)
    k = mtf.Dimension('rank', self.rank)
    r1, r2 = (
      site.variable(
        name,
        [*site.heads, positions, k],
        stddev=self.rank**-0.25,
        dtype=site.logits_dtype,
      )
      for name, positions in (('R1', self.rows_dim), ('R2', self.columns_dim))
    )
    return InnerProduct(
      weighted(site.index.rows(r1), alpha), site.index.columns(r2), k
    )
