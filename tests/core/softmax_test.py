"""The softmax and its parts against NumPy, split over devices, on a TPU."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core.softmax import (
  centered_exp,
  divide,
  exp_and_sum,
  nan_if_clipped,
  softmax,
)
from tests import harness
from tests.core import cases
from tests.core.cases import (
  LENGTH,
  LOGITS,
  MEMORY,
  VALUES,
  WEIGHTS,
  Case,
  X,
  dims,
)

CAUSAL = np.tril(np.ones([LENGTH, MEMORY], int))


def is_one(x):
  return mtf.equal(x, 1)


def expected_softmax(b):
  e = np.exp(b - b.real.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def exp_of(terms, visible):
  """E exp(c), which is exp(B) wherever the center c is."""
  e, center, _ = centered_exp(terms, mtf.Shape(dims(WEIGHTS)), visible)
  return e * mtf.exp(center)


CENTERED = {
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
}


def averaged(b, v):
  """softmax(B) V from its parts, which `exp_and_sum` computes."""
  memory_length = b.shape.dims[-1]
  center = mtf.stop_gradient(mtf.reduce_max(b, reduced_dim=memory_length))
  e, total = exp_and_sum(b, center, memory_length, tf.float32)
  rows = mtf.Shape(dims('batch length heads'))
  x = mtf.einsum([e, v], mtf.Shape([*rows.dims, v.shape.dims[-1]]))
  return divide(x, mtf.transpose(total, rows))


CASES = {
  **CENTERED,
  'average by exponentials and their sums': Case(
    averaged,
    lambda b, v: np.einsum('bhqk,bkhd->bqhd', expected_softmax(b), v),
    {'b': (LOGITS, None), 'v': (VALUES, None)},
    X,
    ('batch', 'heads', 'length'),
    ('memory_length',),
  ),
  'divide': Case(
    lambda x, total: divide(x, total * total),
    lambda x, total: x / total[..., None] ** 2,
    {'x': (X, None), 'total': ('batch length heads', None)},
    X,
    ('batch', 'length', 'heads'),
    ('d_kv',),
  ),
  'softmax': Case(
    lambda b: softmax(b, dims('memory_length')[0], tf.float32),
    expected_softmax,
    {'b': (LOGITS, None)},
    LOGITS,
    ('batch', 'heads', 'length'),
    ('memory_length',),
  ),
}


@cases.everywhere(CASES)
def test_it_is_the_formula(case, mesh):
  cases.check(case, mesh)


@pytest.mark.parametrize('name', CENTERED)
def test_a_mesh_may_split_the_heads_on_a_tpu(name):
  cases.check(CENTERED[name], harness.Mesh('all:2', 'heads:all', tpu=True))


@cases.not_split(CASES)
def test_a_mesh_may_not_split(case, dim):
  cases.check_not_split(case, dim)


@cases.on_cpu_and_tpu
def test_a_softmax_of_bfloat16_logits(mesh):
  def build(mesh_object):
    x = harness.constant(mesh_object, [[0.5, 1.0]], 'length memory_length')
    x = mtf.cast(x, tf.bfloat16)
    # Its gradient is multiplied with x, of the same type.
    w = softmax(x * x, dims('memory_length')[0], x.dtype)
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
    y = divide(x, total)
    return [y, *mtf.gradients([mtf.reduce_sum(y)], [x, total])]

  y, dx, dtotal = harness.evaluate(build)
  np.testing.assert_array_equal(y, np.array([[0, 0], [1.5, 2]]))
  np.testing.assert_array_equal(dx, np.array([[0, 0], [0.5, 0.5]]))
  np.testing.assert_array_equal(dtotal, np.array([0, -1.75]))


@pytest.mark.parametrize(
  'mesh, largest', [(harness.ONE_DEVICE, 1e6), (harness.TPU, 1e6 + 1e3)]
)
def test_the_largest_logits_keep_their_distances(mesh, largest):
  """Exponents are 75 at most, for the largest logit; on a TPU, of each term."""
  a, b = np.array([[-1e6, 0.0, 1e3, 1e9]]), np.array([[0.0, 1e6, 1e3, 0.0]])
  visible = np.array([[1, 1, 1, 0]])

  def build(mesh_object):
    *terms, seen = (
      harness.constant(mesh_object, t, 'length memory_length')
      for t in (a, b, visible)
    )
    return centered_exp(terms, seen.shape, is_one(seen))

  e, center, least = harness.evaluate(build, mesh)
  np.testing.assert_allclose(center, [largest - 75])
  exponents = np.clip(a + b - largest + 75, -75, 75)
  np.testing.assert_allclose(e, np.exp(exponents) * visible, rtol=1e-5)
  np.testing.assert_allclose(least, [4 * np.exp(-75) * 2**24], rtol=1e-6)


def test_sums_of_clipped_exponentials_are_nan():
  least = np.array([0.0, 1e-20, 1e-20, 1e-20])
  totals = np.array([1e-30, 0.0, 1e-21, 1e-19])

  def build(mesh_object):
    return nan_if_clipped(
      harness.constant(mesh_object, totals[np.newaxis], 'one four'),
      harness.constant(mesh_object, least, 'four'),
    )

  np.testing.assert_allclose(
    harness.evaluate(build), [[1e-30, 0.0, np.nan, 1e-19]]
  )


@cases.on_cpu_and_tpu
def test_exponentials_and_their_sums_are_of_the_rounded(mesh):
  b = harness.draw('b', [2, 3])

  def build(mesh_object):
    x = harness.constant(mesh_object, b, 'length memory_length')
    center = mtf.stop_gradient(mtf.reduce_max(x, reduced_dim=x.shape.dims[-1]))
    return exp_and_sum(x, center, x.shape.dims[-1], tf.bfloat16)

  e, total = harness.evaluate(build, mesh)
  np.testing.assert_allclose(
    e.astype(np.float32), np.exp(b - b.max(-1, keepdims=True)), rtol=2**-8
  )
  np.testing.assert_allclose(total, e.astype(np.float32).sum(-1), rtol=1e-6)
