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


def whole(call, found):
  """B as one tensor."""
  b = logits.plus(found.multiplied_out(call), found.shared)
  return mtf.broadcast(b, call.local)


@pytest.mark.parametrize(
  'names, shared, local, product',
  [
    (['table'], 1, False, None),
    (['table', 'bias', 'low rank'], 3, False, None),
    (['pairs'], 0, False, 5),
    (['pairs', 'rows of a table'], 0, False, 7),
    (['rows', 'keys'], 0, True, None),
    (['table', 'rows', 'pairs', 'low rank', 'rows of a table'], 2, True, 7),
  ],
)
def test_terms_are_summed_by_what_they_depend_on(names, shared, local, product):
  def build(mesh):
    call = calls.make(mesh)
    found = logits.add(call, [term(mesh, name) for name in names])
    assert len(found.shared_terms) == shared
    assert (found.shared is None) == (shared == 0)
    assert (found.local is not None) == local
    assert (found.product and found.product.k.size) == product
    assert found.are_shared == (not local and not product)
    return whole(call, found)

  harness.assert_close(harness.evaluate(build), expected(names), 'B', 1e-6)


@pytest.mark.parametrize(
  'names, mesh, joins',
  [
    (['pairs', 'table'], harness.ONE_DEVICE, True),
    (['rows of a table', 'rows'], harness.ONE_DEVICE, True),
    (['pairs', 'table'], harness.TPU, False),
    (['rows'], harness.ONE_DEVICE, False),
  ],
)
def test_a_bias_of_keys_joins_a_product_off_a_tpu(names, mesh, joins):
  def build(mesh_object):
    call = calls.make(mesh_object)
    before = logits.add(call, [term(mesh_object, name) for name in names])
    after, left_over = logits.add_to_keys(
      call, before, term(mesh_object, 'keys')
    )
    assert (left_over is None) == joins
    if joins:
      assert after.product and before.product
      assert after.product.k.size == before.product.k.size + 1
    else:
      assert after is before
    return logits.plus(whole(call, after), left_over)

  found = harness.evaluate(build, mesh)
  harness.assert_close(found, expected([*names, 'keys']), 'B', 1e-6)


def test_a_product_has_the_dimensions_of_its_factors():
  with harness.new_graph() as (_, mesh):
    call = calls.make(mesh)
    product = term(mesh, 'low rank')
    assert {d.name for d in product.dims} == {
      'heads', 'length', 'memory_length',
    }  # fmt: skip
    assert logits.multiply(call, product).shape.dims == call.shared
    assert logits.join(call, [product]) is product


def test_none_stands_for_0_and_for_1():
  with harness.new_graph() as (_, mesh):
    x = term(mesh, 'table')
    rounded = mtf.cast(x, tf.bfloat16)
    assert logits.plus(x, None) is x
    assert logits.plus(None, x) is x
    assert logits.plus(None, None) is None
    total = logits.plus(rounded, x)
    assert total is not None and total.dtype == tf.bfloat16
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
