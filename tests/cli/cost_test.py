"""`synth-mtf cost`: a row for each variant."""

import json
import pathlib

import pytest

from synth_mtf import cost
from synth_mtf.paths import gin_path
from tests.cli.command import run

WORDS = ('cost', '--size=tiny', '--inputs=16', '--targets=8')
CROSS = 2 * 4 * 8 * 16
RANDOM = 2 * 4 * (16 * 16 + 8 * 8)


@pytest.mark.parametrize(
  'words, tables',
  [
    (['--variants=random'], {'random': RANDOM}),
    (
      [
        '--variants=random',
        '--gin_param=encoder/Unitransformer.max_length = 32',
      ],
      {'random': 2 * 4 * (32 * 32 + 8 * 8)},
    ),
    (
      ['--variants=cross_random,random+cross_random'],
      {'cross_random': CROSS, 'random+cross_random': CROSS + RANDOM},
    ),
  ],
)
def test_json(words, tables):
  status, out, _ = run(*WORDS, *words, '--json')
  assert status == 0
  found = {name: cost['tables'] for name, cost in json.loads(out).items()}
  assert found == tables


def test_a_table():
  status, out, _ = run(*WORDS, '--variants=random', '--model_parallelism=2')
  assert status == 0
  title, heads, row = out.splitlines()
  assert title.startswith('tiny, 16 inputs and 8 targets, 2 cores')
  assert heads.split()[:2] == ['variant', 'trained']
  assert row.split()[0] == 'random'


def test_by_default_all_variants_are_counted_but_the_originals(monkeypatch):
  monkeypatch.setattr(cost, 'cost_of_files', lambda *_: cost.Cost(*range(7)))
  files = pathlib.Path(gin_path(), 'variants').glob('*.gin')
  names = sorted(p.stem for p in files if 'original' not in p.stem)
  assert list(json.loads(run('cost', '--json')[1])) == names


def test_an_unknown_size():
  status, _, err = run('cost', '--size=nothing')
  assert status == 2
  assert 'nothing' in err
