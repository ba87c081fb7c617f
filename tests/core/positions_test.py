"""How a table is read at the positions of the tokens."""

import mesh_tensorflow as mtf
import numpy as np
import pytest

from synth_mtf.core import positions
from tests import checks, harness, reference

HEADS, ROWS, COLUMNS, BATCH, LENGTH = 2, 8, 5, 4, 6
# Up to three sequences a row; 0 is padding.
SEQUENCE_ID = np.array(
  [
    [1, 1, 1, 2, 2, 0],
    [1, 1, 1, 1, 1, 1],
    [1, 2, 2, 2, 2, 2],
    [1, 1, 2, 2, 3, 0],
  ]
)
POSITION = np.array(
  [
    [0, 1, 2, 0, 1, 0],
    [0, 1, 2, 3, 4, 5],
    [0, 0, 1, 2, 3, 4],
    [0, 1, 0, 1, 0, 0],
  ]
)
TABLE = harness.draw('table', [HEADS, ROWS, COLUMNS])
LENGTH_DIM = mtf.Dimension('length', LENGTH)
MEMORY_DIM = mtf.Dimension('memory_length', LENGTH)
MESHES = {
  'one device': harness.ONE_DEVICE,
  'tpu': harness.TPU,
  **{
    dim: harness.Mesh('all:2', f'{dim}:all')
    for dim in ('batch', 'heads', 'length')
  },
}
STEPS = np.array([0, 5, 7, 9])
KEYS = np.arange(LENGTH)
LAST = np.minimum(STEPS, ROWS - 1)  # where a table ends


def packed(mesh):
  ids = harness.constant(mesh, SEQUENCE_ID, 'batch length')
  return positions.packed_index(LENGTH_DIM, MEMORY_DIM, ids)


def sliced(mesh):
  return positions.TableIndex(mesh, LENGTH_DIM, MEMORY_DIM)


def step(mesh):
  position = harness.constant(mesh, STEPS, 'batch')
  return positions.TableIndex(mesh, LENGTH_DIM, MEMORY_DIM, position)


# name: the index, what it reads, the dimensions, the same in NumPy.
READS = {
  'packed rows': (
    packed,
    'rows',
    'heads batch length memory_length',
    lambda t: t[:, POSITION],
  ),
  'packed columns': (
    packed,
    'columns',
    'heads length batch memory_length',
    lambda t: t[:, :, POSITION % COLUMNS],
  ),
  'packed cells': (
    packed,
    'cells',
    'batch heads length memory_length',
    lambda t: np.stack([t[:, p][:, :, p % COLUMNS] for p in POSITION]),
  ),
  'sliced rows': (
    sliced,
    'rows',
    'heads length memory_length',
    lambda t: t[:, :LENGTH],
  ),
  'sliced columns': (
    sliced,
    'columns',
    'heads length memory_length',
    lambda t: t[:, :, KEYS % COLUMNS],
  ),
  'sliced cells': (
    sliced,
    'cells',
    'heads length memory_length',
    lambda t: t[:, :LENGTH][:, :, KEYS % COLUMNS],
  ),
  'the row of a step': (
    step,
    'rows',
    'heads batch memory_length',
    lambda t: t[:, LAST],
  ),
  'the cells of a step': (
    step,
    'cells',
    'heads batch memory_length',
    lambda t: t[:, LAST][..., KEYS % COLUMNS],
  ),
}


@pytest.mark.parametrize(
  'name, mesh',
  [
    (name, mesh)
    for name in READS
    for mesh in MESHES
    # The host slices no dimension that is split.
    if not (name.startswith('sliced') and mesh == 'length')
  ],
)
def test_an_index_reads(name, mesh):
  make, method, dims, formula = READS[name]

  def build(mesh_object):
    table = harness.constant(mesh_object, TABLE, 'heads length memory_length')
    read = getattr(make(mesh_object), method)(table)
    order = [next(d for d in read.shape if d.name == n) for n in dims.split()]
    y = mtf.transpose(read, mtf.Shape(order))
    cotangent = harness.draw('cotangent', y.shape.to_integer_list)
    loss = mtf.reduce_sum(y * harness.constant(mesh_object, cotangent, order))
    return y, mtf.gradients([loss], [table])[0]

  y, gradient = harness.evaluate(build, MESHES[mesh])
  np.testing.assert_allclose(y, formula(TABLE), rtol=1e-6)
  cotangent = harness.draw('cotangent', y.shape)
  checks.gradients(
    {'table': gradient},
    reference.probes(
      lambda at: (formula(at['table']) * cotangent).sum(),
      {'table': TABLE.astype(np.float64)},
    ),
    1e-6,
  )
