"""Logits as a sum, whatever its terms depend on."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core import logits
from tests import harness
from tests.core import calls

SIZES = {
  'batch': calls.BATCH,
  'heads': calls.HEADS,
  'length': calls.LENGTH,
  'memory_length': calls.LENGTH,
  'd': 5,
  'e': 2,
}
LOCAL = 'batch heads length memory_length'
# name: dimensions of tensors, or of the two factors of a product.
TERMS = {
  'table': ('heads length memory_length',),
  'bias': ('length memory_length',),
  'rows': ('batch heads length memory_length',),
  'keys': ('batch memory_length',),
  'scaled': ('heads length memory_length', 'heads'),
  'scaled rows': ('batch heads length memory_length', ''),
  'low rank': ('heads length d', 'heads memory_length d'),
  'pairs': ('batch length heads d', 'batch memory_length heads d'),
  'rows of a table': ('batch length heads e', 'heads memory_length e'),
}
LETTERS = dict(zip(SIZES, 'bhijde'))


def array(name, dims):
  return harness.draw(name, [SIZES[d] for d in dims.split()])


def term(mesh, name):
  tensors = [
    harness.constant(mesh, array(f'{name} {i}', dims), dims)
    for i, dims in enumerate(TERMS[name])
  ]
  if len(tensors) == 1:
    return tensors[0]
  if name.startswith('scaled'):
    return logits.Scaled(*tensors)
  query, key = tensors
  return logits.InnerProduct(query, key, query.shape.dims[-1])


def expected(names):
  """The sum, [batch, heads, length, memory_length]."""
  total = np.zeros([SIZES[d] for d in LOCAL.split()])
  for name in names:
    factors = [array(f'{name} {i}', dims) for i, dims in enumerate(TERMS[name])]
    words = [''.join(LETTERS[d] for d in dims.split()) for dims in TERMS[name]]
    ones = np.ones_like(total)
    total += np.einsum(','.join([*words, 'bhij']) + '->bhij', *factors, ones)
  return total


@pytest.mark.parametrize(
  'names, shared, local, product',
  [
    (['table'], 1, 0, None),
    (['table', 'bias', 'low rank', 'scaled'], 4, 0, None),
    (['pairs'], 0, 1, 5),
    (['pairs', 'rows of a table'], 0, 1, 7),
    (['rows', 'keys', 'scaled rows'], 0, 3, None),
    (['table', 'rows', 'pairs', 'low rank', 'rows of a table'], 2, 2, 7),
  ],
)
def test_terms_are_parted_by_what_they_depend_on(names, shared, local, product):
  def build(mesh):
    call = calls.make(mesh)
    found = logits.add(call, [term(mesh, name) for name in names])
    assert len(found.shared) == shared
    assert len(found.local) == local
    products = [t for t in found.local if isinstance(t, logits.InnerProduct)]
    assert [t.k.size for t in products] == [product] * bool(product)
    assert found.terms == [*found.shared, *found.local]
    return mtf.broadcast(logits.total(call, found), call.local)

  harness.assert_close(harness.evaluate(build), expected(names), 'B', 1e-6)


def test_a_product_has_the_dimensions_of_its_factors():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh)
    product = term(mesh, 'low rank')
    assert {d.name for d in product.dims} == {
      'heads', 'length', 'memory_length',
    }  # fmt: skip
    assert logits.multiply(call, product).shape.dims == call.shared
    assert logits.join(call, [product]) is product


def test_none_stands_for_1():
  with harness.new_graph() as (_, mesh):
    x = term(mesh, 'table')
    rounded = mtf.cast(x, tf.bfloat16)
    assert logits.weighted(x, None) is x
    assert logits.weighted(rounded, x).dtype == tf.bfloat16


def test_alpha_is_a_factor_of_each_head():
  def build(mesh):
    alpha = harness.constant(mesh, [1.0, 2.0, 3.0], 'heads')
    return logits.weighted(term(mesh, 'table'), alpha)

  table = array('table 0', TERMS['table'][0])
  np.testing.assert_allclose(
    harness.evaluate(build), table * np.array([1, 2, 3])[:, None, None]
  )
