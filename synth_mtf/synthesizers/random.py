"""Random: the alignment is a learned matrix, independent of the tokens."""

import dataclasses

import gin
import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.logits import Scaled, Term, weighted
from synth_mtf.synthesizers.base import Table


@gin.configurable(module='synth_mtf')
@dataclasses.dataclass(eq=False)
class Random(Table):
  """R, S(X) = R with R in R^(N x N), one per head (eq. 4).

  In cross-attention R is N x M.

  Args:
    trainable: False gives the Fixed Random Synthesizer: R keeps its initial
      values, which are part of the checkpoint.
    stddev: standard deviation of R's initial values. The default gives logits
      of unit variance, as T5's dot products have.
    uniform: R's initial values are uniform in [0, 1), as articles about the
      paper draw them; their standard deviation is 0.29, whatever `stddev` is.

  The other arguments are those of `Table`; with a `tile_length` of b, R has b
  columns, which repeat over the sequence.
  """

  trainable: bool = True
  stddev: float = 1.0
  uniform: bool = False

  last_factors = ('R',)
  position_axes = {'R': (-2, -1)}

  @property
  def letter(self) -> str:
    return 'R' if self.trainable else 'Fix'

  def logits(self, call: LayerCall, alpha: mtf.Tensor | None) -> Term:
    """Returns R, [heads, length, memory_length], shared by the whole batch."""
    self.check_lengths(call)
    table = call.variable(
      'R',
      [*call.heads, self.rows_dim, self.columns_dim],
      stddev=self.stddev,
      dtype=call.logits_dtype,
      trainable=self.trainable,
      initializer=tf.random_uniform_initializer() if self.uniform else None,
    )
    if alpha is not None and call.index.queries.size > self.rows_dim.size:
      # In packed rows, scaling the table is cheaper than scaling the cells.
      return call.index.cells(weighted(table, alpha))
    r = call.index.cells(table)
    if not self.trainable:
      r = mtf.stop_gradient(r)
    return r if alpha is None else Scaled(r, alpha)
