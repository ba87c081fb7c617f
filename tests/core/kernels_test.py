"""Each kernel against NumPy: value and gradient, split over devices, on a TPU.

There is one table of cases.
"""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core import kernels
from tests import harness
from tests.core import cases
from tests.core.cases import (
  HEADS,
  LENGTH,
  LOGITS,
  MEMORY,
  ONE_QUERY,
  VALUES,
  WEIGHTS,
  Case,
  X,
  dims,
  floats,
  integers,
)

on_cpu_and_tpu = pytest.mark.parametrize(
  'mesh', [harness.ONE_DEVICE, harness.TPU], ids=['cpu', 'tpu']
)


def is_one(x):
  return mtf.equal(x, 1)


def softmax(b):
  e = np.exp(b - b.real.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def exp_of(terms, visible):
  """E exp(c), which is exp(B) wherever the center c is."""
  e, center = kernels.centered_exp(terms, mtf.Shape(dims(WEIGHTS)), visible)
  return e * mtf.exp(center)


def sum_of_squares(a, b):
  """(a + b)^2 b, made again for its gradient; and what is on the way to it."""
  way = []

  def make():
    way.append(a + b)
    # The second result has no gradient.
    return mtf.square(way[0]) * b, way[0]

  return kernels.recompute_in_backward(make, [a])[0], way[0]


def product(kernel, factors, output, splits=(), whole=()):
  """A case whose formula is the einsum of x and y."""
  return Case(
    lambda x, y: kernel(x, y),  # whatever it calls them
    cases.product(*factors, output),
    {name: (names, None) for name, names in zip('xy', factors, strict=True)},
    output,
    splits,
    whole,
  )


def shared_product(batch, heads, splits, of_each='', train=True):
  return product(
    lambda w, v: kernels.shared_product(
      w, v, dims(batch), dims('length'), dims(heads), train
    ),
    [
      f'{of_each} {heads} length memory_length',
      f'{batch} memory_length {heads} d_kv',
    ],
    f'{batch} length {heads} d_kv',
    ('batch', *splits),
  )


CAUSAL = np.tril(np.ones([LENGTH, MEMORY], int))
POSITION = np.array([3, 5])
HERE = np.eye(MEMORY, dtype=bool)[POSITION]
ROWS = integers('batch length', 3)
COLUMNS = integers('batch memory_length', 5)
TABLE = harness.draw('table', [HEADS, 3, 5])


def put(memory_names, expand, here, position=POSITION):
  """A case of a token for each example, at its position or that of all."""
  return Case(
    lambda new, memory, position: kernels.put(
      new, memory, position, *dims('memory_length')
    ),
    lambda new, memory, position: np.where(here, expand(new), memory),
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
  'put': put(VALUES, lambda new: new[:, None], HERE[:, :, None, None]),
  'put into a matrix of each head': put(
    'batch heads memory_length d_kv',
    lambda new: new[:, :, None],
    HERE[:, None, :, None],
  ),
  'put at a position of all': put(
    VALUES, lambda new: new[:, None], HERE[1, :, None, None], POSITION[1]
  ),
  'gather': Case(
    lambda table, i: kernels.gather(table, i, 'length'),
    lambda table, i: np.moveaxis(table[:, i], 0, 2),
    {'table': (WEIGHTS, None), 'i': ('batch row', integers('batch row', 6))},
    'batch row heads memory_length',
    ('batch', 'heads', 'memory_length', 'length'),
  ),
  'gather from each example': Case(
    lambda table, i: kernels.gather(table, i, 'memory_length'),
    lambda table, i: np.stack([t[i_] for t, i_ in zip(table, i, strict=True)]),
    {'table': (VALUES, None), 'i': ('batch row', integers('batch row', 8))},
    'batch row heads d_kv',
    ('batch', 'heads', 'd_kv'),
  ),
  'gather cells': Case(
    kernels.gather_cells,
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
  'outer product': product(
    kernels.outer_product,
    ['batch heads row', 'batch heads d_kv'],
    'batch heads row d_kv',
    ('batch', 'heads'),
    ('d_kv',),
  ),
  'made again': Case(
    lambda a, b: sum_of_squares(a, b)[0],
    lambda a, b: (a[:, None] + b) ** 2 * b,
    {'a': ('heads memory_length', None), 'b': (WEIGHTS, None)},
    WEIGHTS,
    ('heads', 'length', 'memory_length'),
  ),
  'centered exp': Case(
    lambda a, b: exp_of([a, b], None),
    lambda a, b: np.exp(a[:, None] + b),
    {'a': ('heads memory_length', None), 'b': (WEIGHTS, None)},
    WEIGHTS,
    ('heads', 'length'),
    ('memory_length',),
  ),
  'centered exp of what is visible': Case(
    lambda a, b, visible: exp_of([a, b], is_one(visible)),
    lambda a, b, visible: np.exp(a[:, None] + b) * visible,
    {
      'a': ('heads memory_length', None),
      'b': (WEIGHTS, None),
      'visible': ('length memory_length', CAUSAL),
    },
    WEIGHTS,
    ('heads', 'length'),
    ('memory_length',),
  ),
  **{
    f'product to {output}': product(
      lambda x, y, output=output: kernels.product(
        x, y, mtf.Shape(dims(output))
      ),
      [x, VALUES],
      output,
      ('batch', 'memory_length', 'heads', 'd_kv'),
    )
    for x, output in (
      ('batch heads d_kv', ONE_QUERY),  # one query and keys
      ('heads memory_length', 'batch heads d_kv'),  # one row for all examples
      (X, LOGITS),  # all queries and keys
    )
  },
  'shared product': shared_product('batch', 'heads', ('length', 'heads')),
  'shared product of one head': shared_product('batch', '', ('length',)),
  'shared product in an ensemble': shared_product(
    'ensemble batch', 'heads', ('ensemble',), of_each='ensemble'
  ),
  'shared product in evaluation': shared_product(
    'batch', 'heads', (), train=False
  ),
  'divide': Case(
    lambda x, total: kernels.divide(x, total * total),
    lambda x, total: x / total[..., None] ** 2,
    {'x': (X, None), 'total': ('batch length heads', None)},
    X,
    ('batch', 'length', 'heads'),
    ('d_kv',),
  ),
  'softmax': Case(
    lambda b: kernels.softmax(b, dims('memory_length')[0], tf.float32),
    softmax,
    {'b': (LOGITS, None)},
    LOGITS,
    ('batch', 'heads', 'length'),
    ('memory_length',),
  ),
}


@cases.everywhere(CASES)
def test_it_is_the_formula(case, mesh):
  cases.check(case, mesh)


@pytest.mark.parametrize(
  'name', [n for n in CASES if n.startswith(('shared', 'centered'))]
)
def test_a_mesh_may_split_the_batch_or_the_heads_on_a_tpu(name):
  case = CASES[name]
  dim = 'batch' if 'batch' in case.splits else 'heads'
  if dim in case.splits:
    cases.check(case, harness.Mesh('all:2', f'{dim}:all', tpu=True))


@pytest.mark.parametrize(
  'name, dim', [(n, d) for n, case in CASES.items() for d in case.whole]
)
def test_a_mesh_may_not_split(name, dim):
  # The host's message has a fault of its own.
  with pytest.raises((ValueError, TypeError), match='splittable|formatting'):
    cases.run(CASES[name], harness.Mesh('all:2', f'{dim}:all'))


@on_cpu_and_tpu
def test_a_softmax_of_bfloat16_logits(mesh):
  def build(mesh_object):
    x = harness.constant(mesh_object, [[0.5, 1.0]], 'length memory_length')
    x = mtf.cast(x, tf.bfloat16)
    # Its gradient is multiplied with x, of the same type.
    w = kernels.softmax(x * x, dims('memory_length')[0], x.dtype)
    return mtf.gradients([mtf.reduce_sum(w * w)], [x])[0]

  x = np.array([0.5, 1.0])
  w = np.exp(x**2) / np.exp(x**2).sum()
  expected = w * (2 * w - (2 * w * w).sum()) * 2 * x
  found = harness.evaluate(build, mesh)
  harness.assert_close(found, expected[np.newaxis], 'gradient', 3e-2)


def test_where_nothing_is_visible_the_quotient_is_0():
  def build(mesh):
    x = harness.constant(mesh, [[1.0, 2.0], [3.0, 4.0]], 'length d_kv')
    total = harness.constant(mesh, [0.0, 2.0], 'length')
    y = kernels.divide(x, total)
    return [y, *mtf.gradients([mtf.reduce_sum(y)], [x, total])]

  y, dx, dtotal = harness.evaluate(build)
  np.testing.assert_array_equal(y, np.array([[0, 0], [1.5, 2]]))
  np.testing.assert_array_equal(dx, np.array([[0, 0], [0.5, 0.5]]))
  np.testing.assert_array_equal(dtotal, np.array([0, -1.75]))


@pytest.mark.parametrize(
  'mesh, middle', [(harness.ONE_DEVICE, 0), (harness.TPU, 500)]
)
def test_exponents_are_at_most_75(mesh, middle):
  """Their zero is the middle of what is visible; on a TPU, of each term."""
  a, b = np.array([[-1e6, 0.0, 1e3, 1e9]]), np.array([[0.0, 1e6, 1e3, 0.0]])
  visible = np.array([[1, 1, 1, 0]])

  def build(mesh_object):
    *terms, seen = (
      harness.constant(mesh_object, t, 'length memory_length')
      for t in (a, b, visible)
    )
    return kernels.centered_exp(terms, seen.shape, is_one(seen))

  e, center = harness.evaluate(build, mesh)
  np.testing.assert_allclose(center, [middle])
  exponents = np.clip(a + b - middle, -75, 75)
  np.testing.assert_allclose(e, np.exp(exponents) * visible, rtol=1e-5)


@pytest.mark.parametrize('name', ['gather', 'gather cells'])
@on_cpu_and_tpu
def test_entries_are_copied_off_a_tpu_and_multiplied_on_one(name, mesh):
  case = CASES[name]
  arrays = cases.values(case)
  with harness.new_graph(mesh) as (graph, mesh_object):
    case.kernel(
      **{
        n: harness.constant(mesh_object, arrays[n], names)
        for n, (names, _) in case.inputs.items()
      }
    )
    products = [
      op
      for op in graph.operations
      if isinstance(op, mtf.EinsumOperation) and len(op.inputs) > 1
    ]
  # Of cells, one for each axis.
  assert len(products) == mesh.tpu * (2 if name == 'gather cells' else 1)


@on_cpu_and_tpu
def test_on_a_tpu_the_gradient_reads_nothing_on_the_way(mesh):
  with harness.new_graph(mesh) as (graph, mesh_object):
    a, b = (
      harness.constant(mesh_object, floats(WEIGHTS, n), WEIGHTS) for n in 'ab'
    )
    y, way = sum_of_squares(a, b)
    forward = len(graph.operations)
    mtf.gradients([mtf.reduce_sum(y)], [a, b])
    read = [x for op in graph.operations[forward:] for x in op.inputs]
  assert (way in read) != mesh.tpu


@on_cpu_and_tpu
def test_one_row_is_multiplied_as_a_matrix_off_a_tpu(mesh):
  """On a TPU as by the host, whose product of numbers is as large as keys."""
  with harness.new_graph(mesh) as (graph, mesh_object):
    q, k = (
      harness.constant(mesh_object, floats(names, names), names)
      for names in ('batch heads d_kv', VALUES)
    )
    y = kernels.product(q, k, mtf.Shape(dims(ONE_QUERY)))
    parallel = mesh.implementation()
    mtf.Lowering(graph, {mesh_object: parallel}).export_to_tf_tensor(y)
    kinds = {op.type for op in tf.get_default_graph().get_operations()}
  assert ('Mul' in kinds) == mesh.tpu
  assert ('Einsum' in kinds) != mesh.tpu
