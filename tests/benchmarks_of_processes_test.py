"""Benchmarks whose contestants run in processes of their own."""

import pathlib
import sys

import pytest

from benchmarks import anchors, growth
from benchmarks._server import Worker
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.slow  # starts processes


def test_a_checkout_takes_part_beside_another(tmp_path):
  path = tmp_path / 'anchors.json'
  results = anchors.main(
    [
      *('--size', 'tiny', '--batch', '2', '--length', '8', '--rounds', '2'),
      *('--ours', 'random', 'mtf random', '--checkout', str(CHECKOUT)),
      *('--json', str(path)),
    ]
  )
  assert path.exists()
  assert list(results['layers']) == [
    'SelfAttention',
    'random',
    'mtf random',
    'random of the other checkout',
  ]
  for layer in results['layers'].values():
    assert layer['seconds']['median'] > 0
    assert set(layer['over']) == set(results['layers'])


def test_each_length_is_a_process_until_memory_would_not_do(tmp_path):
  path = tmp_path / 'growth.json'
  lengths = ['16', '8', '65536']  # the last one would take terabytes
  curves = growth.main(
    ['--size', 'tiny', '--lengths', *lengths, '--rounds', '1']
    + ['--layers', 'random', '--json', str(path)]
  )
  assert path.exists()
  assert list(curves['random']) == [8, 16]
  for point in curves['random'].values():
    assert point['seconds'] > 0
    assert point['bytes'] > curves['nothing'][0]['bytes']


def test_a_worker_that_ends_is_an_error():
  with pytest.raises(RuntimeError, match='ended with status 3'):
    Worker([sys.executable, '-c', 'raise SystemExit(3)'], pathlib.Path('.'))
