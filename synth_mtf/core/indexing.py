"""Reading and writing entries of a tensor by their index."""

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

from synth_mtf.core.dimensions import is_tpu, put_first, sum_over_devices


def put(
  new: mtf.Tensor,
  memory: mtf.Tensor,
  position: mtf.Tensor,
  memory_length: mtf.Dimension,
) -> mtf.Tensor:
  """Writes `new` into `memory` at a position along `memory_length`.

  Args:
    new: [batch..., ...].
    memory: [batch..., ...], with memory_length anywhere after the batch.
    position: nonnegative int32 over any of batch... An example whose position
      is past the end is finished, and its memory is undefined.
    memory_length: the dimension that `new` lacks.
  """
  mesh = memory.mesh
  dims = memory.shape.dims
  axis = dims.index(memory_length)
  outer = dims[:axis]
  # The position gets an axis for each outer dimension, of size 1 if it lacks
  # that dimension.
  given = [d for d in outer if d in position.shape.dims]
  axes = [d if d in given else mtf.Dimension(f'no_{d.name}', 1) for d in outer]
  position = mtf.transpose(position, mtf.Shape(given))
  columns = mtf.range(mesh, memory_length, tf.int32)

  def put_slice(
    memory: tf.Tensor, new: tf.Tensor, position: tf.Tensor, columns: tf.Tensor
  ) -> tf.Tensor:
    is_split = memory.shape[axis] != memory_length.size
    if is_split or is_tpu(mesh):
      return _put_by_comparison(memory, new, position, columns)
    return _put_entry(memory, new, position, axis)

  return mtf.slicewise(
    put_slice,
    [memory, new, mtf.reshape(position, mtf.Shape(axes)), columns],
    splittable_dims=dims,
  )


def _put_entry(
  memory: tf.Tensor, new: tf.Tensor, position: tf.Tensor, axis: int
) -> tf.Tensor:
  """Writes a single entry in each row of a whole `memory`."""
  outer = memory.shape[:axis]
  length = memory.shape[axis]
  inner = memory.shape[axis + 1 :]
  rows = outer.num_elements()
  first = tf.reshape(tf.range(rows) * length, outer)
  written = tf.tensor_scatter_nd_update(
    tf.reshape(memory, [rows * length, *inner]),
    tf.reshape(first + tf.minimum(position, length - 1), [rows, 1]),
    tf.reshape(new, [rows, *inner]),
  )
  return tf.reshape(written, memory.shape)


def _put_by_comparison(
  memory: tf.Tensor, new: tf.Tensor, position: tf.Tensor, columns: tf.Tensor
) -> tf.Tensor:
  """Compares the position with all columns, on a TPU or if they are split."""
  axis = position.shape.rank
  inner = memory.shape[axis + 1 :]
  is_written = tf.equal(columns, position[..., tf.newaxis])
  ones = [1] * inner.rank
  is_written = tf.reshape(is_written, [*is_written.shape, *ones])
  return tf.where_v2(is_written, tf.expand_dims(new, axis), memory)


def gather(table: mtf.Tensor, indices: mtf.Tensor, axis: str) -> mtf.Tensor:
  """Returns `table[..., indices, ...]` along the named axis.

  A TPU multiplies by a one-hot matrix, as the host does; other devices copy
  entries. Indices are int32 and in range. Their dimensions replace `axis`,
  which the mesh must not split; dimensions shared with the table are aligned.
  """
  size = table.shape.get_dim_by_name(axis).size
  position_dim = mtf.Dimension('position', size)
  table = mtf.rename_dimension(table, axis, position_dim.name)
  if is_tpu(table.mesh):
    return mtf.gather(table, indices, position_dim)
  return _gather_by_copying(table, indices, position_dim)


def _gather_by_copying(
  table: mtf.Tensor, indices: mtf.Tensor, position_dim: mtf.Dimension
) -> mtf.Tensor:
  common = [d for d in indices.shape.dims if d in table.shape.dims]
  table = put_first(common, table)
  indices = put_first(common, indices)
  entries = indices.shape.dims[len(common) :]
  axis = table.shape.dims.index(position_dim)
  before = table.shape.dims[:axis]
  after = table.shape.dims[axis + 1 :]
  output_shape = mtf.Shape([*before, *entries, *after])

  def copy(table: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    # A sparse read would make TensorFlow copy the whole variable at every later
    # read, for example when the softmax reads an embedding.
    table = tf.convert_to_tensor(table)
    return tf.gather(table, indices, axis=axis, batch_dims=len(common))

  def gradient(op: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor | None]:
    table, indices = op.inputs
    dy = put_first(indices.shape.dims, dy)
    total = _SumByIndex(dy, indices, position_dim, len(common))
    return [mtf.transpose(total.outputs[0], table.shape), None]

  return mtf.slicewise(
    copy,
    [table, indices],
    output_shape=output_shape,
    splittable_dims=[*output_shape.dims],
    grad_function=gradient,
  )


class _SumByIndex(mtf.Operation):
  """The gradient of `gather`, which sums entries with the same index.

      dT[..., i, ...] = sum of the dY whose index is i

  dY is [common..., entries..., kept...], the indices [common..., entries...],
  and dT [common..., axis, kept...]. Each device sums its own entries, and an
  all-reduce adds the results. The mesh may split any dimension but the axis.
  """

  def __init__(
    self, dy: mtf.Tensor, indices: mtf.Tensor, axis: mtf.Dimension, common: int
  ) -> None:
    """Sums dY; the first `common` dimensions are those of the table, too."""
    super().__init__([dy, indices], mesh=dy.mesh, name='sum_by_index')
    dims = indices.shape.dims
    kept = dy.shape.dims[len(dims) :]
    self._common = common
    self._entries = dims[common:]
    self._size = axis.size
    shape = mtf.Shape([*dims[:common], axis, *kept])
    self._outputs = [mtf.Tensor(self, shape, dy.dtype)]

  def lower(self, lowering: mtf.Lowering) -> None:
    mesh_impl = lowering.mesh_impl(self)
    dy, indices = self.inputs
    total = mesh_impl.slicewise(
      self._sum_slice, lowering.tensors[dy], lowering.tensors[indices]
    )
    total = sum_over_devices(mesh_impl, total, self._entries)
    lowering.set_tensor_lowering(self.outputs[0], total)

  def _sum_slice(self, dy: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Sums the entries of all tables, one after the other in one table."""
    leading = indices.shape[: self._common]
    kept = dy.shape[indices.shape.rank :]
    tables = leading.num_elements()
    first = tf.range(tables)[:, tf.newaxis] * self._size
    total = tf.math.unsorted_segment_sum(
      tf.reshape(dy, [-1, *kept]),
      tf.reshape(tf.reshape(indices, [tables, -1]) + first, [-1]),
      tables * self._size,
    )
    return tf.reshape(total, [*leading, self._size, *kept])


def gather_cells(
  table: mtf.Tensor, rows: mtf.Tensor, columns: mtf.Tensor
) -> mtf.Tensor:
  """Returns `table[..., rows, columns]`, one cell per (row, column) pair.

  On a TPU, a gather is a matrix product, and one product per axis is cheaper
  than one over cells. Other devices read all heads of a cell at once.

  A table [..., length, memory_length] with int32 rows [batch..., length] and
  columns [batch..., memory_length] gives [batch..., ..., length,
  memory_length], in any order.
  """
  if is_tpu(table.mesh):
    return gather(gather(table, rows, 'length'), columns, 'memory_length')
  rows_dim = table.shape.get_dim_by_name('length')
  columns_dim = table.shape.get_dim_by_name('memory_length')
  cell_dim = mtf.Dimension('cell', rows_dim.size * columns_dim.size)
  table = put_first([rows_dim, columns_dim], table)
  cells = mtf.replace_dimensions(table, [rows_dim, columns_dim], cell_dim)
  return gather(cells, rows * columns_dim.size + columns, cell_dim.name)
