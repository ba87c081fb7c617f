"""How a table is read at the positions of the tokens."""

import numpy as np
import pytest

from synth_mtf.core import positions
from tests import harness
from tests.core import cases
from tests.core.cases import HEADS, LENGTH, LOGITS, MEMORY, WEIGHTS, Case, dims

ROWS, COLUMNS = 8, 5
# Up to three sequences a row; 0 is padding.
IDS = np.array([[1, 1, 2, 2, 3, 0], [1, 2, 2, 2, 2, 2]])
MEMORY_IDS = np.array([[1, 1, 1, 2, 2, 2, 2, 0], [1, 2, 2, 2, 2, 2, 2, 2]])
POSITION = np.array([[0, 1, 0, 1, 0, 0], [0, 0, 1, 2, 3, 4]])
MEMORY_POSITION = np.array([[0, 1, 2, 0, 1, 2, 3, 0], [0, *range(7)]])
TABLE = harness.draw('table', [HEADS, ROWS, COLUMNS])
KEYS = np.arange(MEMORY)
STEPS = np.array([5, 9])
LAST = np.minimum(STEPS, ROWS - 1)  # where a table ends
LENGTH_DIM, MEMORY_DIM = dims('length memory_length')


def packed(mesh):
  ids = harness.constant(mesh, IDS, 'batch length')
  memory_ids = harness.constant(mesh, MEMORY_IDS, 'batch memory_length')
  return positions.packed_index(LENGTH_DIM, MEMORY_DIM, ids, memory_ids)


def sliced(mesh):
  return positions.TableIndex(mesh, LENGTH_DIM, MEMORY_DIM)


def step(mesh):
  position = harness.constant(mesh, STEPS, 'batch')
  return positions.TableIndex(mesh, LENGTH_DIM, MEMORY_DIM, position)


def read(make, method, output, formula, *splits):
  """A table as an index reads it; what is not read keeps its own size."""
  table = TABLE
  if method == 'rows':
    table = harness.draw('rows', [HEADS, ROWS, MEMORY])
  elif method == 'columns':
    table = harness.draw('columns', [HEADS, LENGTH, COLUMNS])
  return Case(
    lambda table: getattr(make(table.mesh), method)(table),
    formula,
    {'table': (WEIGHTS, table)},
    output,
    ('heads', *splits),
  )


CASES = {
  'packed rows': read(
    packed,
    'rows',
    'heads batch length memory_length',
    lambda table: table[:, POSITION],
    'batch',
    'length',
  ),
  'packed columns': read(
    packed,
    'columns',
    'heads length batch memory_length',
    lambda table: table[:, :, MEMORY_POSITION % COLUMNS],
    'batch',
    'length',
  ),
  'packed cells': read(
    packed,
    'cells',
    LOGITS,
    lambda table: np.stack(
      [
        table[:, p][:, :, m % COLUMNS]
        for p, m in zip(POSITION, MEMORY_POSITION, strict=True)
      ]
    ),
    'batch',
    'length',
  ),
  'sliced rows': read(sliced, 'rows', WEIGHTS, lambda table: table[:, :LENGTH]),
  'sliced columns': read(
    sliced, 'columns', WEIGHTS, lambda table: table[:, :, KEYS % COLUMNS]
  ),
  'sliced cells': read(
    sliced,
    'cells',
    WEIGHTS,
    lambda table: table[:, :LENGTH][:, :, KEYS % COLUMNS],
  ),
  'the cells of a step': read(
    step,
    'cells',
    'heads batch memory_length',
    lambda table: table[:, LAST][..., KEYS % COLUMNS],
    'batch',
  ),
}


@cases.everywhere(CASES)
def test_an_index_reads(case, mesh):
  cases.check(case, mesh)


@pytest.mark.parametrize(
  'ids, dim, expected',
  [(IDS, LENGTH_DIM, POSITION), (MEMORY_IDS, MEMORY_DIM, MEMORY_POSITION)],
)
def test_position_in_segment(ids, dim, expected):
  found = harness.evaluate(
    lambda mesh: positions.position_in_segment(
      harness.constant(mesh, ids, f'batch {dim.name}'), dim
    )
  )
  np.testing.assert_array_equal(found, expected)
