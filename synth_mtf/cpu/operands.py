"""Tensors of a layer call, brought into the layout of kernels.

    [batch..., heads..., rows..., columns...]

Rows and columns are queries, keys, or what else there is (`cpu.windows`).
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.dimensions import arrange
from synth_mtf.core.layer_call import LayerCall
from synth_mtf.core.visibility import Visibility
from synth_mtf.cpu.windows import Axis, Layout


@dataclasses.dataclass(frozen=True)
class Operand:
  """A tensor as the kernels take it.

  Attributes:
    tensor: [batch..., heads..., rows..., columns...].
    ranks: how many dimensions each of these four has.
    layout: whether its rows and columns are queries or keys, and in which
      order the four lie in memory.
    trained: whether it may need a gradient.
  """

  tensor: mtf.Tensor
  ranks: Sequence[int]
  layout: Layout
  trained: bool


class Operands:
  """Brings tensors into the layout of the kernels."""

  def __init__(
    self, call: LayerCall, batch: Sequence[mtf.Dimension], by_queries: bool
  ) -> None:
    """Creates operands.

    Args:
      call: the layer call.
      batch: the batch dimensions of B.
      by_queries: how tiles are cut; see `Tiling`.
    """
    self.call = call
    self.batch = batch
    self.by_queries = by_queries
    self._axes = {
      None: [],
      Axis.QUERIES: call.length,
      Axis.KEYS: [call.memory_length],
    }

  def rows(
    self,
    axis: Axis,
    x: mtf.Tensor,
    columns: Sequence[mtf.Dimension],
  ) -> Operand:
    """A row for each query or key, or one for all.

    Args:
      axis: which of the two.
      x: over dimensions of [batch..., heads, length or memory_length] and
        columns.
      columns: what else x has.
    """
    return self._operand(x, [axis, None], columns)

  def table(self, x: mtf.Tensor) -> Operand:
    """What is over [batch..., heads, length, memory_length], or less."""
    return self._operand(x, [Axis.QUERIES, Axis.KEYS], [])

  def number(self, x: mtf.Tensor) -> Operand:
    """One for all queries and keys, of each head or of all."""
    return self._operand(x, [None, None], [])

  def masks(self, visibility: Visibility) -> list[Operand]:
    """What is seen, mask by mask, int32; by any example, if B is for all."""
    masks = [mtf.cast(x, tf.int32) for x in visibility.masks]
    if not self.batch:
      batch = set(self.call.batch)
      kept = [[d for d in x.shape.dims if d not in batch] for x in masks]
      masks = [
        mtf.reduce_max(x, output_shape=mtf.Shape(dims))
        for x, dims in zip(masks, kept)
      ]
    return [self.table(x) for x in masks]

  def _operand(
    self,
    x: mtf.Tensor,
    axes: Sequence[Optional[Axis]],
    others: Sequence[mtf.Dimension],
  ) -> Operand:
    """Transposes a tensor.

    Where it has no head or no batch dimension, it gets some of one entry for
    each part of the mesh.
    """
    trained = x.dtype.is_floating and not isinstance(
      x.operation, mtf.StopGradient
    )
    given = set(x.shape.dims)
    of_rows, of_columns = (
      axis if given & set(self._axes[axis]) else None for axis in axes
    )
    heads_last = bool(of_rows and of_columns) and self._ends_with_heads(x)
    layout = Layout(of_rows, of_columns, heads_last)
    rows, columns = self._axes[of_rows], [*self._axes[of_columns], *others]
    batch = self._batch_of(columns)
    present = [
      [*group] if given & set(group) else []
      for group in (batch, self.call.heads)
    ]
    x = arrange(x, _joined(layout.stored([*present, rows, columns])))
    groups = [
      found or [mtf.Dimension(d.name, self.call.parts(d)) for d in group]
      for found, group in zip(present, (batch, self.call.heads))
    ]
    groups = layout.stored([*groups, rows, columns])
    shape = _joined(groups)
    if shape.size == x.size:
      x = mtf.reshape(x, shape)
    else:  # the host broadcasts numbers only
      x = mtf.cast(mtf.broadcast(mtf.cast(x, tf.float32), shape), x.dtype)
    return Operand(x, [*map(len, groups)], layout, trained)

  def _ends_with_heads(self, x: mtf.Tensor) -> bool:
    """Whether x lies so in memory, and tiles have all heads."""
    heads = self.call.heads
    last = x.shape.dims[-len(heads) :]
    return self.by_queries and bool(heads) and last == heads

  def _batch_of(
    self, columns: Sequence[mtf.Dimension]
  ) -> Sequence[mtf.Dimension]:
    """The batch dimensions before all others: those that are no columns."""
    return [d for d in self.call.batch if d not in columns]


def _joined(groups: Sequence[Sequence[mtf.Dimension]]) -> mtf.Shape:
  return mtf.Shape([*itertools.chain(*groups)])
