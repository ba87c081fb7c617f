"""`synth-mtf cost`: a row for each variant."""

import json
import pathlib

from synth_mtf.cli import cost
from synth_mtf.paths import gin_path
from tests.cli.command import run

WORDS = ('cost', '--size=tiny', '--variants=random', '--inputs=16')


def test_json():
  status, out, _ = run(*WORDS, '--targets=8', '--json')
  assert status == 0
  found = json.loads(out)
  assert found['random']['tables'] == 2 * 4 * (16 * 16 + 8 * 8)


def test_a_table():
  status, out, _ = run(*WORDS, '--targets=8', '--model_parallelism=2')
  assert status == 0
  title, heads, row = out.splitlines()
  assert title.startswith('tiny, 16 inputs and 8 targets, 2 cores')
  assert heads.split()[:2] == ['variant', 'trained']
  assert row.split()[0] == 'random'


def test_bindings_come_last():
  _, out, _ = run(
    *WORDS, '--json', '--gin_param=encoder/Unitransformer.max_length = 32',
    '--targets=8',
  )  # fmt: skip
  assert json.loads(out)['random']['tables'] == 2 * 4 * (32 * 32 + 8 * 8)


def test_by_default_all_variants_are_counted_but_the_originals():
  files = pathlib.Path(gin_path(), 'variants').glob('*.gin')
  assert cost._all_variants() == sorted(  # noqa: SLF001
    path.stem for path in files if 'original' not in path.stem
  )


def test_an_unknown_size():
  status, _, err = run('cost', '--size=nothing')
  assert status == 2
  assert 'nothing' in err


def test_variants_may_be_taken_together():
  variants = 'cross_random,random+cross_random'
  _, out, _ = run(
    *('cost', '--size=tiny', f'--variants={variants}', '--inputs=16'),
    *('--targets=8', '--json'),
  )
  found = json.loads(out)
  cross = 2 * 4 * 8 * 16
  assert found['cross_random']['tables'] == cross
  assert found['random+cross_random']['tables'] == cross + 2 * 4 * (
    16 * 16 + 8 * 8
  )
