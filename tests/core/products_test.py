"""Products against einsum in NumPy, split over devices, on a TPU."""

import mesh_tensorflow as mtf
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core.products import outer_product, product, shared_product
from tests import harness
from tests.core import cases
from tests.core.cases import LOGITS, ONE_QUERY, VALUES, Case, X, dims, floats


def einsum_case(multiply, factors, output, splits=(), whole=()):
  """A case whose formula is the einsum of x and y."""
  return Case(
    lambda x, y: multiply(x, y),  # whatever it calls them
    cases.product(*factors, output),
    {name: (names, None) for name, names in zip('xy', factors, strict=True)},
    output,
    splits,
    whole,
  )


def product_case(x, y, output):
  return einsum_case(
    lambda x, y: product(x, y, mtf.Shape(dims(output))),
    [x, y],
    output,
    ('batch', 'memory_length', 'heads', 'd_kv'),
  )


def shared_case(batch, heads, splits, of_each='', train=True):
  return einsum_case(
    lambda w, v: shared_product(
      w, v, dims(batch), dims('length'), dims(heads), train
    ),
    [
      f'{of_each} {heads} length memory_length',
      f'{batch} memory_length {heads} d_kv',
    ],
    f'{batch} length {heads} d_kv',
    ('batch', *splits),
  )


SHARED = {
  'shared product': shared_case('batch', 'heads', ('length', 'heads')),
  'shared product of one head': shared_case('batch', '', ('length',)),
  'shared product in an ensemble': shared_case(
    'ensemble batch', 'heads', ('ensemble',), of_each='ensemble'
  ),
  'shared product in evaluation': shared_case(
    'batch', 'heads', (), train=False
  ),
}
CASES = {
  'product of one query and keys': product_case(
    'batch heads d_kv', VALUES, ONE_QUERY
  ),
  'product of one row for all examples': product_case(
    'heads memory_length', VALUES, 'batch heads d_kv'
  ),
  'product of all queries and keys': product_case(X, VALUES, LOGITS),
  'outer product': einsum_case(
    lambda x, y: outer_product(x, y, mtf.Shape(dims('batch heads row d_kv'))),
    ['batch heads row', 'batch heads d_kv'],
    'batch heads row d_kv',
    ('batch', 'heads'),
    ('d_kv',),
  ),
  **SHARED,
}


@cases.everywhere(CASES)
def test_it_is_the_formula(case, mesh):
  cases.check(case, mesh)


@pytest.mark.parametrize('name', SHARED)
def test_a_mesh_may_split_the_batch_on_a_tpu(name):
  cases.check(SHARED[name], harness.Mesh('all:2', 'batch:all', tpu=True))


@cases.not_split(CASES)
def test_a_mesh_may_not_split(case, dim):
  cases.check_not_split(case, dim)


@cases.on_cpu_and_tpu
def test_one_row_is_multiplied_as_a_matrix_off_a_tpu(mesh):
  """On a TPU as by the host, whose product of numbers is as large as keys."""
  with harness.new_graph(mesh) as (graph, mesh_object):
    q, k = (
      harness.constant(mesh_object, floats(names, names), names)
      for names in ('batch heads d_kv', VALUES)
    )
    y = product(q, k, mtf.Shape(dims(ONE_QUERY)))
    parallel = mesh.implementation()
    mtf.Lowering(graph, {mesh_object: parallel}).export_to_tf_tensor(y)
    kinds = {op.type for op in tf.get_default_graph().get_operations()}
  assert ('Mul' in kinds) == mesh.tpu
  assert ('Einsum' in kinds) != mesh.tpu
