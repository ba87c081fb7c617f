"""A part of benchmarks/claims.py, lowered and trained by JAX alone."""

import json
import sys

import pytest
import tensorflow as tf

from tests.checkout import run

pytestmark = [
  pytest.mark.slow,  # starts processes and compiles
  pytest.mark.skipif(
    not tf.__version__.startswith('2.12'),
    reason='programs are lowered with TensorFlow 2.12',
  ),
]


def test_a_part_trains_with_each_seed(tmp_path):
  module = [sys.executable, '-m', 'benchmarks.accelerator.claims']
  words = ['j', '--models', 'R', '--rows', '640', '--steps', '20']
  run(*module, str(tmp_path), *words)
  plan = json.loads((tmp_path / 'plan.json').read_text())
  assert plan['j']['models'] == {'R': 'R'}
  module = [sys.executable, '-m', 'benchmarks.accelerator.turns']
  words = ['--out', str(tmp_path / 'out'), '--seeds', '1', '2']
  run(*module, str(tmp_path), *words, '--cpu_processes', '1')
  found = json.loads((tmp_path / 'out' / 'claims_j.json').read_text())
  assert (found['steps'], found['seeds']) == (20, [1, 2])
  assert found['evaluated'] == [*range(0, 21, 2)]
  (row,) = found['rows']
  assert len(row['value']) == 2  # mean and standard deviation
  first, second = row['losses'].values()
  assert first != second
  for losses in (first, second):
    assert losses[-1] < losses[0] - 1
