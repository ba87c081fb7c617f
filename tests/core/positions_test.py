"""Tables are read alike by index and by a product with a one-hot matrix."""

import types

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels, positions
from tests import harness

HEADS, ROWS, COLUMNS, BATCH, LENGTH = 2, 8, 5, 4, 6
# Two sequences a row, or one; 0 is padding.
SEQUENCE_ID = np.array(
  [
    [1, 1, 1, 2, 2, 0],
    [1, 1, 1, 1, 1, 1],
    [1, 2, 2, 2, 2, 2],
    [1, 1, 2, 2, 3, 0],
  ]
)
TPU_MESH = types.SimpleNamespace(device_function=lambda op: 'cpu:0')
MESHES = [
  harness.ONE_DEVICE,
  harness.Mesh('rows:2', 'batch:rows'),
  harness.Mesh('rows:2,columns:2', 'batch:rows,heads:columns'),
  harness.Mesh('rows:2', 'length:rows'),
]


def read(use, placer=None, mesh=harness.ONE_DEVICE):
  """What `use(index, table)` reads, and the gradient of its weighted sum."""
  with tf.Graph().as_default():
    graph = mtf.Graph()
    mtf_mesh = mtf.Mesh(graph, 'mesh', placer)
    length = mtf.Dimension('length', LENGTH)
    table = mtf.import_tf_tensor(
      mtf_mesh,
      tf.constant(harness.draw('table', [HEADS, ROWS, COLUMNS])),
      mtf.Shape(
        [('heads', HEADS), ('length', ROWS), ('memory_length', COLUMNS)]
      ),
    )
    ids = mtf.import_tf_tensor(
      mtf_mesh,
      tf.constant(SEQUENCE_ID, tf.int32),
      mtf.Shape([mtf.Dimension('batch', BATCH), length]),
    )
    index = positions.PackedIndex(
      length, mtf.Dimension('memory_length', LENGTH), ids
    )
    y = use(index, table)
    y = mtf.transpose(y, mtf.Shape(sorted(y.shape.dims)))
    cotangent = mtf.import_tf_tensor(
      mtf_mesh,
      tf.constant(harness.draw('cotangent', y.shape.to_integer_list)),
      y.shape,
    )
    (gradient,) = mtf.gradients([mtf.reduce_sum(y * cotangent)], [table])
    lowering = mtf.Lowering(graph, {mtf_mesh: mesh.implementation()})
    results = [lowering.export_to_tf_tensor(t) for t in (y, gradient)]
    devices = tf.ConfigProto(device_count={'CPU': mesh.size})
    with tf.Session(config=devices) as session:
      return session.run(results)


USES = {
  'rows': lambda index, table: index.rows(table),
  'columns': lambda index, table: index.columns(table),
  'cells': lambda index, table: index.cells(table),
  'one row': lambda index, table: kernels.gather(
    table, mtf.constant(table.mesh, 3, dtype=tf.int32), 'length'
  ),
  'aligned': lambda index, table: kernels.gather(
    index.rows(table), index.keys % COLUMNS, 'memory_length'
  ),
}


@pytest.mark.parametrize('mesh', MESHES, ids=lambda m: m.layout or 'one device')
@pytest.mark.parametrize('use', USES.values(), ids=USES)
def test_an_index_reads_what_a_one_hot_matrix_reads(use, mesh):
  expected = read(use, TPU_MESH)
  for actual, wanted in zip(read(use, mesh=mesh), expected):
    np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)


def test_a_cell_is_the_entry_at_both_positions():
  table = harness.draw('table', [HEADS, ROWS, COLUMNS])
  cells, _ = read(USES['cells'])  # [batch, heads, length, memory_length]
  position = np.array(
    [[np.sum(row[:i] == row[i]) for i in range(LENGTH)] for row in SEQUENCE_ID]
  )
  for b in range(BATCH):
    wanted = table[:, position[b]][:, :, position[b] % COLUMNS]
    np.testing.assert_array_equal(cells[b], wanted)


def test_only_a_mesh_whose_variables_are_placed_is_a_tpu():
  graph = mtf.Graph()
  assert kernels.is_tpu(mtf.Mesh(graph, 'tpu', TPU_MESH))
  assert not kernels.is_tpu(mtf.Mesh(graph, 'cpu'))
