"""The benchmark runs and its JSON is complete; no test looks at a time."""

import json
import subprocess
import sys

import pytest

from benchmarks import attention, decoding
from benchmarks._contestants import BASELINE, RIVAL_MODES, contestants
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.slow  # runs the benchmarks

TINY = (
  *('--size', 'tiny', '--batch', '2', '--length', '12', '--targets', '5'),
  *('--lengths', '8', '12', '--batches', '1', '2'),
  *('--rounds', '1', '--matrix_size', '16'),
)
ENTRY = {
  'seconds',
  'cpu_seconds',
  'speed',
  'over_rival',
  'parameters',
  'gflop',
  'gbyte',
  'bound',
  'largest_tensor',
}


def run(tmp_path, section, *names):
  path = tmp_path / 'results.json'
  variants = ['--variants', *names] if names else []
  attention.main([*TINY, '--sections', section, *variants, '--json', str(path)])
  return json.loads(path.read_text())[section]


def check(result, *names):
  assert result['matrix_gflop_per_second'] > 0
  assert set(result['contestants']) == {BASELINE, *names}
  for entry in result['contestants'].values():
    assert set(entry) >= ENTRY
    assert entry['parameters'] > 0
    assert entry['gflop'] > 0
    assert set(entry['speed']) == {
      'median',
      'quartiles',
      'range',
      'cpu_median',
    }
  return result['contestants']


def test_every_variant_and_every_mode_of_the_rival_takes_part():
  names = set(contestants())
  assert {f'mtf {mode}' for mode in RIVAL_MODES} < names
  assert {'vanilla', 'random', 'dense', 'random_vanilla', 'glu'} < names
  for contestant in contestants().values():
    assert not contestant.rival or contestant.rival in names


@pytest.mark.parametrize('section', ['layer', 'packed'])
def test_layers(tmp_path, section):
  entries = check(
    run(tmp_path, section, 'random', 'mtf random'), 'random', 'mtf random'
  )
  assert entries['random']['over_rival']['rival'] == 'mtf random'
  assert entries['random']['gflop'] < entries[BASELINE]['gflop']


def test_largest_tensor_of_random_does_not_grow_with_the_batch(tmp_path):
  results = run(tmp_path, 'growth', 'random')
  assert [r['shape']['length'] for r in results] == [8, 12, 12, 12]
  assert [r['shape']['batch'] for r in results] == [1, 1, 1, 2]
  alone, together = [
    check(r, 'random')['random']['largest_tensor'] for r in results[2:]
  ]
  assert alone == together


@pytest.mark.parametrize('section', ['model', 'decode'])
def test_models(tmp_path, section):
  fast = 'random, fast_cpu'
  entries = check(run(tmp_path, section, 'random', fast), 'random', fast)
  # A product with one-hot vectors less.
  assert entries[fast]['gflop'] < 0.9 * entries['random']['gflop']
  if section == 'decode':
    assert all(e['tokens_per_second'] > 0 for e in entries.values())


def test_decoding(tmp_path):
  path = tmp_path / 'results.json'
  ours = 'random, fast_cpu'
  decoding.main(
    [
      *('--size', 'tiny', '--batch', '2', '--length', '12', '--targets', '5'),
      *('--rounds', '1', '--stream_bytes', '4000', '--beams', '1', '2'),
      *('--ours', ours, '--json', str(path)),
    ]
  )
  results = json.loads(path.read_text())
  assert [result['shape']['beams'] for result in results] == [1, 2]
  for result in results:
    assert result['gbyte_per_second'] > 0
    entries = result['contestants']
    assert list(entries) == [BASELINE, ours]
    # R's decoder has no q and no k, and reads a row of its tables.
    assert (
      0
      < entries[ours]['bound'] * entries[ours]['seconds']['median']
      < (entries[BASELINE]['bound'] * entries[BASELINE]['seconds']['median'])
    )


def test_an_unknown_contestant_is_refused():
  with pytest.raises(SystemExit, match='mtf radnom'):
    attention.main([*TINY, '--sections', 'layer', '--variants', 'mtf radnom'])


def test_input(some_data):
  tasks = ['glue_mrpc_v002', 'super_glue_record_v102']
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'benchmarks.input', '--data_dir', str(some_data)),
      *('--uncached', '--megabytes', '1', '--examples', '50', '--rounds', '1'),
      *('--tasks', *tasks),
    ],
    cwd=CHECKOUT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  result = json.loads(done.stdout)
  assert list(result['tasks']) == tasks
  for rates in result['tasks'].values():
    assert rates['t5'] > 0
    assert rates['ours'] > 0
