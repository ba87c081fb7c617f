"""Lowered training steps, run by JAX alone, and the benchmark around them."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.checkout import run
from tests.harness import assert_close

pytestmark = [
  pytest.mark.slow,  # starts processes and compiles
  pytest.mark.skipif(
    not tf.__version__.startswith('2.12'),
    reason='programs are lowered with TensorFlow 2.12',
  ),
]
NAMES = ('random_vanilla', 'mtf random')


@pytest.fixture(scope='module')
def lowered(tmp_path_factory):
  """A folder of programs, and the losses of their first steps."""
  folder = tmp_path_factory.mktemp('programs')
  words = [sys.executable, '-m', 'tests.accelerator.steps', str(folder)]
  lines = run(*words, *NAMES).stdout.splitlines()
  return folder, [json.loads(line) for line in lines if line[:1] == '{']


def test_the_losses_are_those_of_tensorflow(lowered):
  _, losses = lowered
  assert len(losses) == len(NAMES)
  for found in losses:
    assert_close(np.array(found['jax']), np.array(found['session']))
    assert found['jax'] == sorted(found['jax'], reverse=True)


def test_a_failure_does_not_end_the_timing(lowered, tmp_path):
  path = tmp_path / 'speed.json'
  words = ['benchmarks.accelerator.speed', f'16={lowered[0]}', '--out']
  words += [str(path), '--names', *NAMES, 'missing', '--matmul', '64']
  run(sys.executable, '-m', *words)
  found = json.loads(path.read_text())['16']
  assert 'FileNotFoundError' in found['missing']['error']
  for name in ('random_vanilla', 'mtf_random'):
    assert found[name]['seconds'] > 0
    assert found[name]['flops']['own'] > found[name]['flops']['t5'] / 2
    assert found[name]['memory']['peak'] > 0
