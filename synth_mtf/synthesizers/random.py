"""Random: the alignment is a learned matrix, independent of the tokens."""

from typing import Optional

import gin
import mesh_tensorflow as mtf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Scaled, Term, weighted
from synth_mtf.synthesizers.base import Table


@gin.configurable(module='synth_mtf')
class Random(Table):
  """R, S(X) = R with R in R^(N x N), one per head (eq. 4).

  In cross-attention R is N x M. It has unit variance at first, like T5's dot
  products.
  """

  last_factor = 'R'
  position_axes = {'R': (-2, -1)}

  def __init__(
    self,
    trainable: bool = True,
    max_length: Optional[int] = None,
    tile_length: Optional[int] = None,
    memory_max_length: Optional[int] = None,
  ) -> None:
    """Creates a Random synthesizing function.

    Args:
      trainable: False gives the Fixed Random Synthesizer: R keeps its initial
        values, which are part of the checkpoint.
      max_length: N. Default: the host's `Unitransformer.max_length` (512).
      tile_length: b <= M: R has b columns, tiled to the length.
      memory_max_length: M. Default: N, and in cross-attention the encoder's.
    """
    super().__init__(max_length, tile_length, memory_max_length)
    self.trainable = trainable

  @property
  def letter(self) -> str:
    """R, or Fix if it is not trained."""
    return 'R' if self.trainable else 'Fix'

  def parameters(self, d_model: int, heads: int, d_kv: int) -> int:
    """Heads N b."""
    return heads * self.max_length * self.tile_length

  def logits(self, call: LayerCall, alpha: Optional[mtf.Tensor]) -> Term:
    """R, [heads, length, memory_length]: the same for the whole batch."""
    self.check_queries(call)
    self.check_keys(call)
    table = call.variable(
      'R',
      [*call.heads, self.rows_dim, self.columns_dim],
      stddev=1.0,
      dtype=call.logits_dtype,
      trainable=self.trainable,
    )
    if alpha is not None and call.index.queries.size > self.rows_dim.size:
      # In packed rows, the table is smaller than the cells read from it.
      return call.index.cells(weighted(table, alpha))
    r = call.index.cells(table)
    if not self.trainable:
      r = mtf.stop_gradient(r)
    return r if alpha is None else Scaled(r, alpha)
