"""The position of a token inside its sequence, and reading tables there.

A learned table has a `length` axis (one row per query position), a
`memory_length` axis (one column per key position), or both. A `TableIndex`
reads the rows and columns of the tokens at hand:

  SlicedIndex    one sequence per row: token i is at position i.
  PackedIndex    several sequences per row: positions restart in each.
  StepIndex      incremental decoding: one query at `context.position`.
"""

import abc
from typing import Optional

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels


def position_in_segment(
  sequence_id: mtf.Tensor, length_dim: mtf.Dimension
) -> mtf.Tensor:
  """Position of each token inside its own segment.

      position_i = |{ j < i : sequence_id_j = sequence_id_i }|

  For sequence_id = [1, 1, 1, 2, 2, 0] this is [0, 1, 2, 0, 1, 0]. In a T5 model
  the host's own `context.position` is the index in the row.

  Args:
    sequence_id: int32 [batch..., length]; 0 is padding.
    length_dim: its `length` or `memory_length` dimension.

  Returns:
    int32, of the shape of sequence_id.
  """
  earlier_dim = mtf.Dimension('earlier', length_dim.size)
  index = mtf.range(sequence_id.mesh, length_dim, tf.int32)
  same = mtf.equal(
    sequence_id,
    mtf.rename_dimension(sequence_id, length_dim.name, earlier_dim.name),
  )
  earlier = mtf.less(mtf.range(sequence_id.mesh, earlier_dim, tf.int32), index)
  return mtf.reduce_sum(
    mtf.cast(mtf.logical_and(same, earlier), tf.int32), reduced_dim=earlier_dim
  )


class TableIndex(abc.ABC):
  """Reads a table at the positions of the queries and of the memory.

  Attributes:
    length_dim: the `length` dimension of the row that is being processed.
    memory_length_dim: its `memory_length` dimension.
    queries: int32 position of each query: [length], [batch..., length], or
      without `length` in incremental decoding.
    keys: int32 position of each key, [memory_length] or [batch...,
      memory_length].
  """

  def __init__(
    self,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
    queries: mtf.Tensor,
    keys: mtf.Tensor,
  ) -> None:
    self.length_dim = length_dim
    self.memory_length_dim = memory_length_dim
    self.queries = queries
    self.keys = keys

  @abc.abstractmethod
  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """Replaces the table's `length` axis by the query positions."""

  @abc.abstractmethod
  def columns(self, table: mtf.Tensor) -> mtf.Tensor:
    """Replaces the table's `memory_length` axis by the key positions.

    A table with fewer columns than keys repeats: key j reads column j mod
    (number of columns).
    """

  def cells(self, table: mtf.Tensor) -> mtf.Tensor:
    """Replaces both axes of a table that has both."""
    return self.columns(self.rows(table))

  def _wrapped_keys(self, columns: int) -> mtf.Tensor:
    """The column of each key in a table of that many columns."""
    if columns < self.memory_length_dim.size:
      return self.keys % columns
    return self.keys


class _UnpackedIndex(TableIndex):
  """Key j is at position j."""

  def __init__(
    self,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
    queries: mtf.Tensor,
  ) -> None:
    keys = mtf.range(queries.mesh, memory_length_dim, tf.int32)
    super().__init__(length_dim, memory_length_dim, queries, keys)

  def columns(self, table: mtf.Tensor) -> mtf.Tensor:
    """Columns 0, 1, 2, ..., repeated if they are too few."""
    size = table.shape.get_dim_by_name('memory_length').size
    if size >= self.memory_length_dim.size:
      return _leading(table, self.memory_length_dim)
    return kernels.gather(table, self._wrapped_keys(size), 'memory_length')


class SlicedIndex(_UnpackedIndex):
  """Token i of the row is at position i: the table is sliced."""

  def __init__(
    self,
    mesh: mtf.Mesh,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
  ) -> None:
    queries = mtf.range(mesh, length_dim, tf.int32)
    super().__init__(length_dim, memory_length_dim, queries)

  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """Rows 0, 1, 2, ..."""
    return _leading(table, self.length_dim)


class StepIndex(_UnpackedIndex):
  """One query per step, at `position` (a scalar or [batch])."""

  def __init__(
    self,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
    position: mtf.Tensor,
  ) -> None:
    super().__init__(length_dim, memory_length_dim, position)

  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """The row `position`, or the last one for a sequence that is finished.

    The host decodes until all sequences are finished.
    """
    last = table.shape.get_dim_by_name('length').size - 1
    return kernels.gather(table, mtf.minimum(self.queries, last), 'length')


class PackedIndex(TableIndex):
  """Several sequences share a row, and each reads the table from its start.

  The result has the batch dimensions of `sequence_id`.
  """

  def __init__(
    self,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
    sequence_id: mtf.Tensor,
    memory_sequence_id: Optional[mtf.Tensor] = None,
  ) -> None:
    """Creates an index.

    Args:
      length_dim: the `length` dimension of the row.
      memory_length_dim: its `memory_length` dimension.
      sequence_id: of the queries, [batch..., length].
      memory_sequence_id: of the keys, [batch..., memory_length]; None if the
        keys are the queries' own tokens.
    """
    queries = position_in_segment(sequence_id, length_dim)
    if memory_sequence_id is None:
      keys = mtf.replace_dimensions(queries, length_dim, memory_length_dim)
    else:
      keys = position_in_segment(memory_sequence_id, memory_length_dim)
    super().__init__(length_dim, memory_length_dim, queries, keys)

  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """The row of each token's position in its segment."""
    return kernels.gather(table, self.queries, 'length')

  def columns(self, table: mtf.Tensor) -> mtf.Tensor:
    """The column of each token's position in its segment."""
    size = table.shape.get_dim_by_name('memory_length').size
    return kernels.gather(table, self._wrapped_keys(size), 'memory_length')

  def cells(self, table: mtf.Tensor) -> mtf.Tensor:
    """One cell for each pair of tokens, at their positions."""
    columns = table.shape.get_dim_by_name('memory_length').size
    return kernels.gather_cells(
      table, self.queries, self._wrapped_keys(columns)
    )


def _leading(table: mtf.Tensor, dim: mtf.Dimension) -> mtf.Tensor:
  """The first `dim.size` entries of the table's axis of that name."""
  if table.shape.get_dim_by_name(dim.name).size == dim.size:
    return table
  return mtf.slice(table, 0, dim.size, dim.name)
