"""`synth-mtf checkpoint`: what it prints, and what it says of damage."""

import re

import numpy as np
import pytest

from synth_mtf.checkpoints.files import Checkpoint, write
from tests import model
from tests.cli.command import run

pytestmark = pytest.mark.slow  # builds whole models

TINY = [
  *(f'--gin_file={file}' for file in model.files('random_vanilla')),
  *(f'--gin_param={binding}' for binding in model.TINY),
]


def test_inspect_and_compare(t5, tmp_path):
  status, out, _ = run('checkpoint', 'inspect', t5)
  assert status == 0 and 'step 7' in out and 'vocabulary of 128' in out
  assert 'encoder/block_000/layer_000/SelfAttention/q  [24, 24]  float32' in out
  assert run('checkpoint', 'convert', t5, tmp_path, *TINY)[0] == 0
  status, out, _ = run('checkpoint', 'compare', t5, tmp_path)
  assert status == 0
  assert out.count('SelfAttention/q: differs by') == 4
  assert out.count(': differs by') == 4
  assert out.count('random/R: only in the second') == 4


@pytest.mark.parametrize('rest', [None, 1000])
def test_a_damaged_checkpoint_is_named(t5, tmp_path, rest):
  source = Checkpoint(t5)
  folder = tmp_path / 'a'
  write(str(folder), 9, {name: source[name] for name in source.variables})
  (data,) = folder.glob('model.ckpt-9.data*')
  content = bytearray(data.read_bytes())
  content[len(content) // 2] ^= 1
  data.write_bytes(content[:rest])
  for words in (
    ['inspect', folder],
    ['convert', folder, tmp_path / 'b', '--gin_file=sizes/tiny.gin'],
    ['compare', folder, t5],
  ):
    status, _, err = run('checkpoint', *words)
    assert status == 2 and re.search('damaged in .*model.ckpt-9 ', err), err
    assert 'Traceback' not in err
  assert not list((tmp_path / 'b').glob('*.index'))


def test_what_has_another_shape_or_is_not_in_both(tmp_path):
  paths = [
    write(str(tmp_path / name), 7, {'s': np.array('s', object), **values})
    for name, values in (
      ('a', {'x': np.zeros(3), 'y': np.zeros(2), 'z': np.ones(2)}),
      ('b', {'x': np.zeros(4), 'y': np.zeros(2, int), 'w': np.ones(2)}),
    )
  ]
  status, out, _ = run('checkpoint', 'compare', *paths)
  assert status == 0
  assert out.splitlines() == [
    'x: float64[3] in the first, float64[4] in the second',
    'y: float64[2] in the first, int64[2] in the second',
    'z: only in the first',
    'w: only in the second',
    '3 variables in both',
  ]
