"""What XLA makes of the program of 8 TPU cores, and what it computes."""

import json
import os
import sys

import numpy as np
import pytest

from tests.checkout import run
from tests.harness import assert_close
from tests.tpu import program
from tests.tpu.program_test import OURS

pytestmark = [pytest.mark.slow, pytest.mark.xla]  # runs TPU programs

MESHES = ['batch:4,model:2', 'batch:2,model:4']
DEFAULT = [
  ('random', MESHES[0]),
  ('random_dense_vanilla', MESHES[1]),
  ('convolution', MESHES[0]),
]


@pytest.mark.parametrize(
  'settings',
  [
    DEFAULT,
    pytest.param(
      [(v, m) for v in OURS for m in MESHES], marks=pytest.mark.tpu_proof
    ),
  ],
  ids=['some', 'every variant'],
)
def test_cores_agree_with_one_device(settings):
  """In a process of its own, whose CPU has 8 devices."""
  words = [word for setting in settings for word in setting]
  command = sys.executable, '-m', 'tests.tpu.replicas', *words
  environment = {**os.environ, 'CUDA_VISIBLE_DEVICES': ''}
  printed = run(*command, env=environment, timeout=None).stdout
  lines = [x for x in printed.splitlines() if x.startswith('{')]
  assert len(lines) == len(settings)
  for proof in map(json.loads, lines):
    losses = np.array(proof['replicas'])
    where = f'{proof["variant"]} on {proof["mesh"]}'
    assert losses.shape == (3, 8)
    assert_close(losses, np.repeat(losses[:, :1], 8, 1), f'cores of {where}')
    assert_close(losses[:, 0], np.array(proof['one device']), where)
    # Training has changed something, so that later losses prove the updates.
    assert (np.abs(np.diff(losses[:, 0])) > 1e-3).all()


def test_a_layer_of_make_tpu_compile_is_lowered(tmp_path):
  words = ['-m', 'tests.tpu.lower', tmp_path, 'random', '--layers', '1']
  run(sys.executable, *words)
  hlo = (tmp_path / 'random.hlo').read_bytes()
  assert b'all-reduce' in hlo  # the sums across cores


def test_programs_are_of_runs_as_shipped():
  lengths, packed = program.shipped('pretrain_c4')
  assert (lengths, packed) == ({'inputs': 512, 'targets': 114}, False)
  assert program.shipped('translate')[1]  # which leaves it to the host
