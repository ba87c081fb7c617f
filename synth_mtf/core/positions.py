"""Token positions within a sequence, and table lookups at these positions."""

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.indexing import gather, gather_cells


def position_in_segment(
  sequence_id: mtf.Tensor, length_dim: mtf.Dimension
) -> mtf.Tensor:
  """Returns the position of each token inside its own segment.

      position_i = |{ j < i : sequence_id_j = sequence_id_i }|

  For sequence_id = [1, 1, 1, 2, 2, 0] this is [0, 1, 2, 0, 1, 0]. In a T5 model
  the host's own `context.position` is the index in the row.
  """
  earlier_dim = mtf.Dimension('earlier', length_dim.size)
  i = mtf.range(sequence_id.mesh, length_dim, tf.int32)
  ids_of_j = mtf.rename_dimension(
    sequence_id, length_dim.name, earlier_dim.name
  )
  same = mtf.equal(sequence_id, ids_of_j)
  j = mtf.range(sequence_id.mesh, earlier_dim, tf.int32)
  counted = mtf.logical_and(same, mtf.less(j, i))
  return mtf.reduce_sum(mtf.cast(counted, tf.int32), reduced_dim=earlier_dim)


class TableIndex:
  """Reads a learned table at the positions of the queries and of the memory.

  A table has a `length` axis (one row per query position), a `memory_length`
  axis (one column per key position), or both.

  Attributes:
    length_dim: the `length` dimension of the row that is being processed.
    memory_length_dim: the `memory_length` dimension of that row.
    queries: int32 position of each query: [length]; [batch..., length] in
      packed rows, where positions restart in each sequence; without `length`
      in incremental decoding.
    keys: int32 position of each key, [memory_length] or, in packed rows,
      [batch..., memory_length].
    is_packed: whether the keys' positions differ between rows.
  """

  def __init__(
    self,
    mesh: mtf.Mesh,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
    queries: mtf.Tensor | None = None,
    keys: mtf.Tensor | None = None,
  ) -> None:
    """Creates an index; by default, token i of a row is at position i."""
    self.length_dim = length_dim
    self.memory_length_dim = memory_length_dim
    self.is_packed = keys is not None
    if queries is None:
      queries = mtf.range(mesh, length_dim, tf.int32)
    if keys is None:
      keys = mtf.range(mesh, memory_length_dim, tf.int32)
    self.queries = queries
    self.keys = keys

  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """Replaces the table's `length` axis by the query positions.

    The host decodes until all sequences are finished. Those that finish
    earlier read the last row.
    """
    dims = self.queries.shape.dims
    if dims == [self.length_dim]:
      return _leading(table, self.length_dim)
    queries = self.queries
    if self.length_dim not in dims:
      last = table.shape.get_dim_by_name('length').size - 1
      queries = mtf.minimum(queries, last)
    return gather(table, queries, 'length')

  def columns(self, table: mtf.Tensor) -> mtf.Tensor:
    """Replaces the table's `memory_length` axis by the key positions.

    A table with fewer columns than keys repeats: key j reads column j mod
    (number of columns).
    """
    size = table.shape.get_dim_by_name('memory_length').size
    if not self.is_packed and size >= self.memory_length_dim.size:
      return _leading(table, self.memory_length_dim)
    return gather(table, self.wrapped_keys(size), 'memory_length')

  def cells(self, table: mtf.Tensor) -> mtf.Tensor:
    if not self.is_packed:
      return self.columns(self.rows(table))
    size = table.shape.get_dim_by_name('memory_length').size
    return gather_cells(table, self.queries, self.wrapped_keys(size))

  def wrapped_keys(self, columns: int) -> mtf.Tensor:
    """Returns the column that each key reads."""
    if columns < self.memory_length_dim.size:
      return self.keys % columns
    return self.keys


def packed_index(
  length_dim: mtf.Dimension,
  memory_length_dim: mtf.Dimension,
  sequence_id: mtf.Tensor,
  memory_sequence_id: mtf.Tensor | None = None,
) -> TableIndex:
  """Creates an index for packed rows, where each sequence starts at position 0.

  `memory_sequence_id`, [batch..., memory_length], is None if the keys are the
  queries' own tokens.
  """
  queries = position_in_segment(sequence_id, length_dim)
  if memory_sequence_id is None:
    keys = mtf.replace_dimensions(queries, length_dim, memory_length_dim)
  else:
    keys = position_in_segment(memory_sequence_id, memory_length_dim)
  return TableIndex(queries.mesh, length_dim, memory_length_dim, queries, keys)


def _leading(table: mtf.Tensor, dim: mtf.Dimension) -> mtf.Tensor:
  """Returns the first `dim.size` entries along the table's axis `dim.name`."""
  if table.shape.get_dim_by_name(dim.name).size == dim.size:
    return table
  # The host cannot slice an axis that the mesh splits.
  whole = mtf.rename_dimension(table, dim.name, 'position')
  first = mtf.slice(whole, 0, dim.size, 'position')
  return mtf.rename_dimension(first, 'position', dim.name)
