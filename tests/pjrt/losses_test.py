"""Devices of JAX compute what TensorFlow's session computes."""

import json
import os
import sys

import numpy as np
import pytest

from tests.checkout import run

MESHES = ['batch:1', 'batch:8', 'batch:4,model:2', 'batch:2,model:4']
VARIANTS = [
  'SelfAttention',
  'vanilla',
  'random',
  'factorized_random',
  'dense',
  'factorized_dense',
  'random_vanilla',
  'dense_vanilla',
  'random_dense',
  'random_dense_vanilla',
  'fixed_random',
  'bottleneck_dense',
]
SOME = [
  ('SelfAttention', MESHES[0]),
  ('random', MESHES[2]),
  ('random_dense_vanilla', MESHES[3]),
]
# Sums in another order round differently. Ten steps then agree to 1e-6; later,
# the input of a ReLU may be on the other side of 0.
FIRST = 1e-5  # of ten steps
LAST = 2e-3  # of 20 steps


@pytest.mark.xla
@pytest.mark.parametrize(
  'platform, settings',
  [
    pytest.param('cpu', SOME, marks=pytest.mark.slow),
    pytest.param('gpu', SOME[1:], marks=pytest.mark.slow),
    pytest.param(
      'cpu',
      [(v, m) for v in VARIANTS for m in MESHES],
      marks=pytest.mark.tpu_proof,
    ),
  ],
  ids=['some', "a GPU's program", 'every variant'],
)
def test_losses_equal_those_of_a_session(platform, settings):
  """In a process of its own, whose CPU has 8 devices."""
  words = [word for setting in settings for word in setting]
  command = sys.executable, '-m', 'tests.pjrt.losses', platform, *words
  environment = {**os.environ, 'CUDA_VISIBLE_DEVICES': ''}
  printed = run(*command, env=environment, timeout=None).stdout
  proofs = [json.loads(x) for x in printed.splitlines() if x.startswith('{')]
  assert len(proofs) == len(settings)
  for proof in proofs:
    where = f'{proof["variant"]} on {proof["mesh"]}'
    losses, expected = np.array(proof['devices']), np.array(proof['session'])
    assert len(losses) == 20
    np.testing.assert_allclose(losses[:10], expected[:10], FIRST, err_msg=where)
    np.testing.assert_allclose(losses, expected, LAST, err_msg=where)
    assert losses[-1] < 0.8 * losses[0], where  # later losses prove the updates
