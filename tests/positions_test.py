"""Positions inside a segment, and how tables are read there."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.positions import (
  PackedIndex,
  SlicedIndex,
  StepIndex,
  position_in_segment,
)
from tests import harness

ROWS, COLUMNS, LENGTH = 11, 13, 7
LENGTH_DIM = mtf.Dimension('length', LENGTH)
MEMORY_DIM = mtf.Dimension('memory_length', LENGTH)
IDS = np.array(
  [
    [1, 1, 1, 2, 2, 0, 0],
    [1, 2, 2, 2, 2, 2, 2],
    [0, 0, 0, 0, 0, 0, 0],
    [3, 3, 3, 3, 3, 3, 3],
  ]
)
POSITIONS = np.array(
  [
    [0, 1, 2, 0, 1, 0, 1],
    [0, 0, 1, 2, 3, 4, 5],
    [0, 1, 2, 3, 4, 5, 6],
    [0, 1, 2, 3, 4, 5, 6],
  ]
)
TABLE = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def evaluate(build):
  with harness.new_graph() as (graph, mesh):
    fetches = build(mesh)
    with harness.open_session(
      graph, mesh, harness.ONE_DEVICE, fetches, None
    ) as session:
      return session.run({})


def imported(mesh, array, *dims):
  array = np.asarray(array)
  return mtf.import_tf_tensor(mesh, tf.constant(array), mtf.Shape(dims))


def ids(mesh):
  return imported(
    mesh,
    IDS.astype(np.int32),
    mtf.Dimension('batch', len(IDS)),
    LENGTH_DIM,
  )


def table(mesh, rows=ROWS, columns=COLUMNS):
  return imported(
    mesh,
    TABLE[:rows, :columns],
    mtf.Dimension('length', rows),
    mtf.Dimension('memory_length', columns),
  )


def read(index, table):
  """index.rows and index.columns, with length in front of memory_length."""
  found = index.columns(index.rows(table))
  names = ['batch', 'length', 'memory_length']
  dims = sorted(found.shape.dims, key=lambda d: names.index(d.name))
  return mtf.transpose(found, mtf.Shape(dims))


def test_position_in_segment():
  found = evaluate(lambda mesh: position_in_segment(ids(mesh), LENGTH_DIM))
  np.testing.assert_array_equal(found, POSITIONS)


def test_position_in_segment_of_random_rows():
  rng = np.random.RandomState(0)
  rows = np.cumsum(rng.rand(40, 19) < 0.3, axis=1).astype(np.int32)
  rows[:, 17:] = 0
  length = mtf.Dimension('length', 19)
  found = evaluate(
    lambda mesh: position_in_segment(
      imported(mesh, rows, mtf.Dimension('batch', 40), length), length
    )
  )
  for row, positions in zip(rows, found):
    for segment in np.unique(row):
      at = positions[row == segment]
      np.testing.assert_array_equal(at, np.arange(len(at)))


@pytest.mark.parametrize('columns', [COLUMNS, LENGTH, 3])
def test_unpacked_rows_slice(columns):
  found = evaluate(
    lambda mesh: read(
      SlicedIndex(mesh, LENGTH_DIM, MEMORY_DIM), table(mesh, columns=columns)
    )
  )
  at = np.arange(LENGTH)
  np.testing.assert_array_equal(
    found, TABLE[at[:, None], at[None, :] % columns]
  )


@pytest.mark.parametrize('columns', [COLUMNS, LENGTH, 3])
def test_packed_rows_read_by_position(columns):
  found = evaluate(
    lambda mesh: read(
      PackedIndex(LENGTH_DIM, MEMORY_DIM, ids(mesh)),
      table(mesh, columns=columns),
    )
  )
  np.testing.assert_array_equal(
    found, TABLE[POSITIONS[:, :, None], POSITIONS[:, None, :] % columns]
  )


@pytest.mark.parametrize('columns', [COLUMNS, LENGTH, 3])
@pytest.mark.parametrize('position', [4, [0, 6, 3]])
def test_a_step_reads_one_row(columns, position):
  position = np.array(position, np.int32)
  dims = [mtf.Dimension('batch', 3)] if position.ndim else []
  found = evaluate(
    lambda mesh: read(
      StepIndex(LENGTH_DIM, MEMORY_DIM, imported(mesh, position, *dims)),
      table(mesh, columns=columns),
    )
  )
  keys = np.arange(LENGTH) % columns
  np.testing.assert_array_equal(found, TABLE[position[..., None], keys])
