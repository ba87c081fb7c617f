"""Random: the alignment is a learned matrix and looks at no token."""

from typing import Optional

import gin
import mesh_tensorflow as mtf

from synth_mtf.synthesizers.base import Site, Table, weighted


@gin.configurable(module='synth_mtf')
class Random(Table):
  """R, S(X) = R with R in R^(N x N), one for each head (eq. 3, section 3.1.2).

  R starts with unit variance, which is how T5's dot products start.
  """

  def __init__(
    self,
    trainable: bool = True,
    max_length: Optional[int] = None,
    tile_length: Optional[int] = None,
  ):
    """Creates a Random synthesizing function.

    Args:
      trainable: False gives the Fixed Random Synthesizer: R keeps its initial
        values, and the checkpoint keeps R.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      tile_length: b <= N: R has b columns, tiled to the length.

    Raises:
      ConfigurationError: if a length does not fit.
    """
    super().__init__(max_length, tile_length)
    self.trainable = trainable

  def logits(self, site: Site, alpha: Optional[mtf.Tensor]) -> mtf.Tensor:
    """R, [heads, length, memory_length]: the same for the whole batch."""
    self.check_length(site)
    table = site.variable(
      'R',
      [*site.heads, self.rows_dim, self.columns_dim],
      stddev=1.0,
      dtype=site.logits_dtype,
      trainable=self.trainable,
    )
    return weighted(site.index.cells(table), alpha)
