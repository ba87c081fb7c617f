"""What the ways to the weighted sum have in common."""

import numpy as np

from synth_mtf.layer import parts
from tests import harness
from tests.core import calls

TOKENS = np.array([[1, 1, 1, 0], [1, 0, 0, 0]])


def test_zero_where_there_is_no_token():
  x = harness.draw('x', [2, 4, 3])

  def build(mesh):
    x_in = harness.constant(mesh, x, 'batch length heads')
    assert parts.at(None, x_in) is x_in
    return parts.at(harness.constant(mesh, TOKENS, 'batch length'), x_in)

  found = harness.evaluate(build)
  np.testing.assert_array_equal(found, x * TOKENS[..., None])


def test_product():
  weights = harness.draw('w', [2, 3, 4, 4])
  values = harness.draw('v', [2, 4, 3, 5])

  def build(mesh):
    return parts.product(
      calls.make(mesh),
      harness.constant(mesh, weights, 'batch heads length memory_length'),
      harness.constant(mesh, values, 'batch memory_length heads d_kv'),
    )

  np.testing.assert_allclose(
    harness.evaluate(build),
    np.einsum('bhij,bjhd->bihd', weights, values),
    rtol=1e-5,
    atol=1e-6,
  )
