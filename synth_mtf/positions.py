"""Where a token stands inside its sequence, and how a table is read there.

Every learned table of a synthesizing function has a `length` axis (one row a
query position), a `memory_length` axis (one column a key position) or both. A
`TableIndex` reads the rows and columns that belong to the tokens at hand. There
is one class for each way in which tokens are laid out:

  SlicedIndex    one sequence a row: token i stands at position i.
  PackedIndex    several sequences a row: the position restarts in each.
  StepIndex      incremental decoding: one query at `context.position`.
"""

import abc
import functools

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf


def position_in_segment(
  sequence_id: mtf.Tensor, length_dim: mtf.Dimension
) -> mtf.Tensor:
  """Position of each token inside its own segment.

      position_i = |{ j < i : sequence_id_j = sequence_id_i }|

  For sequence_id = [1, 1, 1, 2, 2, 0] this is [0, 1, 2, 0, 1, 0]. The host does
  not hand it down to the layers of a T5 model (`context.position` is the index
  in the row there), so it is derived from what the host does hand down.

  Args:
    sequence_id: int32 [batch..., length]; 0 is padding.
    length_dim: its length dimension.

  Returns:
    int32 [batch..., length].
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
  ):
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

    A table with fewer columns than there are keys is tiled: key j reads column
    j mod (number of columns).
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
  """Key j stands at position j."""

  def __init__(self, length_dim, memory_length_dim, queries):
    keys = mtf.range(queries.mesh, memory_length_dim, tf.int32)
    super().__init__(length_dim, memory_length_dim, queries, keys)

  def columns(self, table: mtf.Tensor) -> mtf.Tensor:
    """Columns 0, 1, 2, ..., tiled if they are too few."""
    size = table.shape.get_dim_by_name('memory_length').size
    if size >= self.memory_length_dim.size:
      return _leading(table, self.memory_length_dim)
    return gather(table, self._wrapped_keys(size), 'memory_length')


class SlicedIndex(_UnpackedIndex):
  """Token i of the row stands at position i: the table is sliced."""

  def __init__(
    self,
    mesh: mtf.Mesh,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
  ):
    queries = mtf.range(mesh, length_dim, tf.int32)
    super().__init__(length_dim, memory_length_dim, queries)

  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """Rows 0, 1, 2, ..."""
    return _leading(table, self.length_dim)


class StepIndex(_UnpackedIndex):
  """One query token a step, at `position` (a scalar or [batch])."""

  def __init__(
    self,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
    position: mtf.Tensor,
  ):
    super().__init__(length_dim, memory_length_dim, position)

  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """The row `position`.

    A sequence that is done may pass the end of the table, since the host
    decodes until all are done; what it reads there is never used.
    """
    last = table.shape.get_dim_by_name('length').size - 1
    return gather(table, mtf.minimum(self.queries, last), 'length')


class PackedIndex(TableIndex):
  """Several sequences share the row: the table is read segment by segment.

  The result has the batch dimensions of `sequence_id`, since each row of the
  batch is packed in its own way.
  """

  def __init__(
    self,
    length_dim: mtf.Dimension,
    memory_length_dim: mtf.Dimension,
    sequence_id: mtf.Tensor,
  ):
    queries = position_in_segment(sequence_id, length_dim)
    keys = mtf.replace_dimensions(queries, length_dim, memory_length_dim)
    super().__init__(length_dim, memory_length_dim, queries, keys)

  def rows(self, table: mtf.Tensor) -> mtf.Tensor:
    """The row of each token's position in its segment."""
    return gather(table, self.queries, 'length')

  def columns(self, table: mtf.Tensor) -> mtf.Tensor:
    """The column of each token's position in its segment."""
    size = table.shape.get_dim_by_name('memory_length').size
    return gather(table, self._wrapped_keys(size), 'memory_length')

  def cells(self, table: mtf.Tensor) -> mtf.Tensor:
    """One cell for each pair of tokens; all heads of a cell are read at once.

    Where a gather is a product, two products with the smaller axes are less.
    """
    if is_tpu(table.mesh):
      return super().cells(table)
    axes = [table.shape.get_dim_by_name(n) for n in ('length', 'memory_length')]
    cell_dim = mtf.Dimension('cell', mtf.Shape(axes).size)
    others = [d for d in table.shape.dims if d not in axes]
    cells = mtf.replace_dimensions(_with_first(axes, table), axes, cell_dim)
    columns = axes[1].size
    indices = self.queries * columns + self._wrapped_keys(columns)
    batch = self.queries.shape.dims[:-1]
    return mtf.transpose(
      gather(cells, indices, cell_dim.name),
      mtf.Shape(batch + others + [self.length_dim, self.memory_length_dim]),
    )


def gather(table: mtf.Tensor, indices: mtf.Tensor, axis: str) -> mtf.Tensor:
  """`table[..., indices, ...]` along the axis of that name.

  A TPU mesh multiplies with a one-hot matrix, as the host does; elsewhere the
  entries are copied, which is far less work for a processor without a matrix
  unit to spare. The axis gets a name of its own, which no layout splits.

  Args:
    table: a tensor with a dimension named `axis`.
    indices: int32 of any shape, all of them on the axis; dimensions that the
      table has too are aligned.
    axis: a dimension name.

  Returns:
    A tensor with the dimensions of `indices` in place of `axis`.
  """
  position_dim = mtf.Dimension(
    'position', table.shape.get_dim_by_name(axis).size
  )
  table = mtf.rename_dimension(table, axis, position_dim.name)
  if is_tpu(table.mesh):
    return mtf.gather(table, indices, position_dim)
  common = [d for d in indices.shape.dims if d in table.shape.dims]
  table = _with_first(common, table)
  indices = _with_first(common, indices)
  at = table.shape.dims.index(position_dim)
  new = indices.shape.dims[len(common) :]
  output_shape = mtf.Shape(
    table.shape.dims[:at] + new + table.shape.dims[at + 1 :]
  )

  def copy(table, indices):
    return tf.gather(table, indices, axis=at, batch_dims=len(common))

  return mtf.slicewise(
    copy,
    [table, indices],
    output_shape=output_shape,
    splittable_dims=[*output_shape.dims],
    grad_function=lambda op, dy: [
      _scatter(dy, indices, op.inputs[0].shape, position_dim),
      None,
    ],
  )


def is_tpu(mesh: mtf.Mesh) -> bool:
  """Whether the mesh is one of TPU cores, whose variables the host places."""
  return callable(mesh.variable_placer_fn)  # elsewhere the name of a device


def _scatter(dy, indices, table_shape, position_dim):
  """The gradient of `gather`: entries that share a place are summed.

  Each example fills a table of its own; their sum is left to the mesh, which
  may split the batch, but not what is summed here.
  """
  common = [d for d in indices.shape.dims if d in table_shape.dims]
  new = [d for d in indices.shape.dims if d not in common]
  names = {'length': 'row', 'memory_length': 'column'}
  summed = [
    mtf.Dimension(names[d.name], d.size) for d in new if d.name in names
  ]
  for old, name in names.items():
    if old in (d.name for d in new):
      dy = mtf.rename_dimension(dy, old, name)
      indices = mtf.rename_dimension(indices, old, name)
  examples = common + [d for d in new if d.name not in names]
  kept = [d for d in table_shape.dims if d not in common + [position_dim]]
  tables = mtf.slicewise(
    functools.partial(_segment_sum, len(examples), position_dim.size),
    [_with_first(examples + summed, dy), _with_first(examples, indices)],
    output_shape=mtf.Shape(examples + [position_dim] + kept),
    splittable_dims=examples + kept,
  )
  return mtf.einsum([tables], table_shape)


def _segment_sum(batch_dims, size, dy, indices):
  """Sums [batch..., entries..., kept...] by indices [batch..., entries...]."""
  batch, entries = indices.shape[:batch_dims], indices.shape[batch_dims:]
  kept = dy.shape[indices.shape.rank :]
  examples = batch.num_elements()
  first = tf.range(examples)[:, tf.newaxis] * size
  table = tf.math.unsorted_segment_sum(
    tf.reshape(dy, [examples * entries.num_elements(), *kept]),
    tf.reshape(tf.reshape(indices, [examples, -1]) + first, [-1]),
    examples * size,
  )
  return tf.reshape(table, [*batch, size, *kept])


def _with_first(dims, x):
  """Puts these dimensions of x in front."""
  others = [d for d in x.shape.dims if d not in dims]
  return mtf.transpose(x, mtf.Shape(dims + others))


def _leading(table: mtf.Tensor, dim: mtf.Dimension) -> mtf.Tensor:
  """The first `dim.size` entries of the table's axis of that name."""
  if table.shape.get_dim_by_name(dim.name).size == dim.size:
    return table
  return mtf.slice(table, 0, dim.size, dim.name)
