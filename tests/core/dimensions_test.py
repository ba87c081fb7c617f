"""The order of named dimensions."""

import mesh_tensorflow as mtf
import numpy as np

from synth_mtf.core import dimensions
from tests import harness

A, B, C = (mtf.Dimension(n, s) for n, s in zip('abc', (2, 3, 5)))
X = harness.draw('x', [2, 3])


def test_arrange_transposes_and_broadcasts():
  def build(mesh):
    x = harness.constant(mesh, X, [A, B])
    same = dimensions.arrange(x, mtf.Shape([B, A]))
    more = dimensions.arrange(x, mtf.Shape([B, C, A]))
    assert same.shape.dims == [B, A]
    assert more.shape.dims == [B, C, A]
    return same, more

  same, more = harness.evaluate(build)
  np.testing.assert_array_equal(same, X.T)
  np.testing.assert_array_equal(more, np.stack([X.T] * 5, axis=1))


def test_put_first():
  def build(mesh):
    x = harness.constant(mesh, X, [A, B])
    y = dimensions.put_first([B], x)
    assert y.shape.dims == [B, A]
    return y

  np.testing.assert_array_equal(harness.evaluate(build), X.T)


def test_only_a_mesh_whose_variables_are_placed_is_a_tpu():
  for mesh in (harness.ONE_DEVICE, harness.TPU):
    with harness.new_graph(mesh) as (_, mesh_object):
      assert dimensions.is_tpu(mesh_object) == mesh.tpu
