"""What the Dense functions share: projections that keep their scale."""

import mesh_tensorflow as mtf
import numpy as np
import pytest

from synth_mtf.synthesizers import local
from tests import checks, family, harness
from tests.core import calls

BLOCKS = mtf.Dimension('blocks', 500)
WIDTH = mtf.Dimension('d_kv', 200)
Z = harness.draw('z', [calls.BATCH, 3, calls.D_MODEL])


def evaluated(build, weights=harness.draw):
  """Returns x, [batch, length, d_model], and what is built from its call."""

  def build_both(mesh):
    call = calls.make(mesh)
    return call.x, build(call)

  return harness.evaluate(build_both, weights=weights)


def test_project_multiplies_by_a_variable():
  x, y = evaluated(lambda call: local.project(call, call.x, 'w', [BLOCKS]))
  w = harness.draw('w', [calls.D_MODEL, BLOCKS.size])
  harness.assert_close(y, x @ w, 'y')


def test_project_may_sum_over_several_dimensions():
  def build(call):
    z = harness.constant(call.context.mesh, Z, 'batch parts d_model')
    return local.project(call, z, 'w', [BLOCKS], reduced=2)

  _, y = evaluated(build)
  w = harness.draw('w', [3, calls.D_MODEL, BLOCKS.size])
  harness.assert_close(y, np.einsum('bpd,pdn->bn', Z, w), 'y')


@pytest.mark.parametrize(
  'build, gain',
  [
    (lambda call: local.project(call, call.x, 'w', [BLOCKS]), 1.0),
    (lambda call: local.project(call, call.x, 'w', [BLOCKS], gain=2.0), 2.0),
    # ReLU halves the second moment.
    (lambda call: local.relu_layer(call, WIDTH), 1.0),
  ],
  ids=['project', 'with gain', 'relu_layer'],
)
def test_initial_weights_keep_the_second_moment(build, gain):
  x, y = evaluated(build, weights=None)
  ratio = np.square(y).mean() / np.square(x).mean()
  assert ratio == pytest.approx(gain, rel=0.15)


def test_a_width_of_its_own():
  result = checks.parallel(family.D.of_size(key_value_size=2))
  assert result.weights['dense/W1'].shape == (11, 3, 2)
  assert result.weights['dense/W2'].shape == (3, 2, 13)
