"""What the Dense functions share: projections that keep their scale."""

import mesh_tensorflow as mtf
import numpy as np
import pytest

from synth_mtf.synthesizers import local
from tests import harness
from tests.core import calls

BLOCKS = mtf.Dimension('blocks', 500)
WIDTH = mtf.Dimension('d_kv', 200)


def made(build, weights=harness.draw):
  """Of a call on x [batch, length, d_model]: x, and what is built."""

  def build_both(mesh):
    call = calls.make(mesh)
    return call.x, build(call)

  return harness.evaluate(build_both, weights=weights)


def test_it_is_the_product_with_its_variable():
  x, y = made(lambda call: local.project(call, call.x, 'w', [BLOCKS]))
  w = harness.draw('w', [calls.D_MODEL, BLOCKS.size])
  harness.assert_close(y, x @ w, 'y')


def test_it_may_sum_over_several_dimensions():
  def build(call):
    z = harness.constant(
      call.context.mesh,
      harness.draw('z', [calls.BATCH, 3, calls.D_MODEL]),
      'batch parts d_model',
    )
    return local.project(call, z, 'w', [BLOCKS], reduced=2)

  _, y = made(build)
  z = harness.draw('z', [calls.BATCH, 3, calls.D_MODEL])
  w = harness.draw('w', [3, calls.D_MODEL, BLOCKS.size])
  harness.assert_close(y, np.einsum('bpd,pdn->bn', z, w), 'y')


@pytest.mark.parametrize('gain', [1.0, 2.0])
def test_at_first_it_keeps_the_second_moment(gain):
  x, y = made(
    lambda call: local.project(call, call.x, 'w', [BLOCKS], gain=gain),
    weights=None,
  )
  ratio = np.square(y).mean() / np.square(x).mean()
  assert ratio == pytest.approx(gain, rel=0.15)


def test_so_does_the_hidden_layer_whose_relu_halves_it():
  x, y = made(lambda call: local.relu_layer(call, WIDTH), weights=None)
  assert (y >= 0).all()
  ratio = np.square(y).mean() / np.square(x).mean()
  assert ratio == pytest.approx(1.0, rel=0.15)
