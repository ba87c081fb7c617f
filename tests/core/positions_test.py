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


def packed(mesh):
  ids = harness.constant(mesh, SEQUENCE_ID, 'batch length')
  return positions.PackedIndex(LENGTH_DIM, MEMORY_DIM, ids)


def sliced(mesh):
  return positions.SlicedIndex(mesh, LENGTH_DIM, MEMORY_DIM)


def step(mesh):
  position = harness.constant(mesh, np.array([0, 5, 7, 9]), 'batch')
  return positions.StepIndex(LENGTH_DIM, MEMORY_DIM, position)


def test_position_in_segment():
  found = harness.evaluate(
    lambda mesh: positions.position_in_segment(
      harness.constant(mesh, SEQUENCE_ID, 'batch length'), LENGTH_DIM
    )
  )
  np.testing.assert_array_equal(found, POSITION)


KEYS = np.arange(LENGTH)
LAST = np.minimum([0, 5, 7, 9], ROWS - 1)  # where a table ends
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


@pytest.mark.parametrize('make', [sliced, step])
def test_columns_that_suffice_are_not_tiled(make):
  table = harness.draw('table', [HEADS, ROWS, LENGTH + 1])
  found = harness.evaluate(
    lambda mesh: make(mesh).columns(
      harness.constant(mesh, table, 'heads length memory_length')
    )
  )
  np.testing.assert_array_equal(found, table[:, :, :LENGTH])


def test_queries_and_keys():
  def build(mesh):
    return {
      name: (make(mesh).queries, make(mesh).keys)
      for name, make in (('p', packed), ('s', sliced), ('i', step))
    }

  found = harness.evaluate(build)
  for actual, expected in (
    (found['p'], (POSITION, POSITION)),
    (found['s'], (KEYS, KEYS)),
    (found['i'], (np.array([0, 5, 7, 9]), KEYS)),
  ):
    for one, wanted in zip(actual, expected):
      np.testing.assert_array_equal(one, wanted)
