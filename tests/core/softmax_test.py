"""The softmax and its parts against NumPy, split over devices, on a TPU."""

import mesh_tensorflow as mtf
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.core.softmax import centered_exp, divide, softmax
from tests import harness
from tests.core import cases
from tests.core.cases import LENGTH, LOGITS, MEMORY, WEIGHTS, Case, X, dims

CAUSAL = np.tril(np.ones([LENGTH, MEMORY], int))


def is_one(x):
  return mtf.equal(x, 1)


def expected_softmax(b):
  e = np.exp(b - b.real.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def exp_of(terms, visible):
  """E exp(c), which is exp(B) wherever the center c is."""
  e, center = centered_exp(terms, mtf.Shape(dims(WEIGHTS)), visible)
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
CASES = {
  **CENTERED,
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
    return centered_exp(terms, seen.shape, is_one(seen))

  e, center = harness.evaluate(build, mesh)
  np.testing.assert_allclose(center, [middle])
  exponents = np.clip(a + b - middle, -75, 75)
  np.testing.assert_allclose(e, np.exp(exponents) * visible, rtol=1e-5)
