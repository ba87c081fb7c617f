"""Reading and writing by index against NumPy, split over devices, on a TPU."""

import mesh_tensorflow as mtf
import numpy as np
import pytest

from synth_mtf.core.indexing import gather, gather_cells, put
from tests import harness
from tests.core import cases
from tests.core.cases import (
  HEADS,
  LOGITS,
  MEMORY,
  VALUES,
  WEIGHTS,
  Case,
  dims,
  integers,
)

POSITION = np.array([3, 5])
IS_WRITTEN = np.eye(MEMORY, dtype=bool)[POSITION]
ROWS = integers('batch length', 3)
COLUMNS = integers('batch memory_length', 5)
TABLE = harness.draw('table', [HEADS, 3, 5])


def put_case(memory_names, expand, is_written, position=POSITION):
  """A case of a token for each example, at its position or that of all."""
  return Case(
    lambda new, memory, position: put(
      new, memory, position, *dims('memory_length')
    ),
    lambda new, memory, position: np.where(is_written, expand(new), memory),
    {
      'new': ('batch heads d_kv', None),
      'memory': (memory_names, None),
      'position': ('batch' * position.ndim, position),
    },
    memory_names,
    ('batch', 'memory_length', 'heads'),
    trained=False,
  )


CASES = {
  'put': put_case(
    VALUES, lambda new: new[:, None], IS_WRITTEN[:, :, None, None]
  ),
  'put into a matrix of each head': put_case(
    'batch heads memory_length d_kv',
    lambda new: new[:, :, None],
    IS_WRITTEN[:, None, :, None],
  ),
  'put at a position of all': put_case(
    VALUES, lambda new: new[:, None], IS_WRITTEN[1, :, None, None], POSITION[1]
  ),
  'gather': Case(
    lambda table, i: gather(table, i, 'length'),
    lambda table, i: np.moveaxis(table[:, i], 0, 2),
    {'table': (WEIGHTS, None), 'i': ('batch row', integers('batch row', 6))},
    'batch row heads memory_length',
    ('batch', 'heads', 'memory_length', 'length'),
  ),
  'gather from each example': Case(
    lambda table, i: gather(table, i, 'memory_length'),
    lambda table, i: np.stack([t[i_] for t, i_ in zip(table, i, strict=True)]),
    {'table': (VALUES, None), 'i': ('batch row', integers('batch row', 8))},
    'batch row heads d_kv',
    ('batch', 'heads', 'd_kv'),
  ),
  'gather cells': Case(
    gather_cells,
    lambda table, rows, columns: np.stack(
      [table[:, r][:, :, c] for r, c in zip(rows, columns, strict=True)]
    ),
    {
      'table': (WEIGHTS, TABLE),
      'rows': ('batch length', ROWS),
      'columns': ('batch memory_length', COLUMNS),
    },
    LOGITS,
    ('batch', 'heads'),
  ),
}


@cases.everywhere(CASES)
def test_it_is_the_formula(case, mesh):
  cases.check(case, mesh)


@pytest.mark.parametrize('name, products', [('gather', 1), ('gather cells', 2)])
@cases.on_cpu_and_tpu
def test_entries_are_copied_off_a_tpu_and_multiplied_on_one(
  name, products, mesh
):
  """One product for each axis."""
  case = CASES[name]
  arrays = cases.values(case)
  with harness.new_graph(mesh) as (graph, mesh_object):
    case.kernel(
      **{
        n: harness.constant(mesh_object, arrays[n], names)
        for n, (names, _) in case.inputs.items()
      }
    )
    found = [
      op
      for op in graph.operations
      if isinstance(op, mtf.EinsumOperation) and len(op.inputs) > 1
    ]
  assert len(found) == (products if mesh.tpu else 0)
