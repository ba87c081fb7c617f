"""benchmarks/claims.py: its tasks, and a part of it in a few steps."""

import os
import subprocess
import sys

import pytest
import seqio
import tensorflow_datasets

from benchmarks import _claims_tasks, claims
from synth_mtf.analysis import runs
from tests.conftest import CHECKOUT


def rows(task, count):
  source = seqio.TaskRegistry.get(task).source
  dataset = source.get_dataset('validation', shuffle=False).take(count)
  return [
    (row['inputs'].decode(), row['targets'].decode())
    for row in tensorflow_datasets.as_numpy(dataset)
  ]


def test_copy_and_reverse():
  for inputs, targets in rows('claims_copy', 20):
    assert inputs == targets
    assert len(inputs) == _claims_tasks.LENGTH
  for inputs, targets in rows('claims_reverse', 20):
    assert inputs == targets[::-1] != targets


def test_pairs_are_answered_and_balanced():
  found = rows('claims_pairs', 400)
  for inputs, targets in found:
    text, asked = inputs.split('?')
    assert len(set(text)) == len(text) == _claims_tasks.LENGTH
    assert targets == ('y' if asked in text else 'n')
  assert 150 < sum(targets == 'y' for _, targets in found) < 250


def test_rows_of_splits_differ_and_those_of_a_split_repeat():
  assert rows('claims_copy', 5) == rows('claims_copy', 5)
  train = seqio.TaskRegistry.get('claims_copy').source.get_dataset('train')
  assert train.element_spec['inputs'].dtype.name == 'string'


def test_every_variant_of_a_part_is_there():
  for letter, part in claims.PARTS.items():
    names = [model.name for model in part.models]
    assert len(set(names)) == len(names), letter
    for model in part.models:
      for variant in model.variants:
        assert (CHECKOUT / 'gin' / 'variants' / f'{variant}.gin').exists()


@pytest.mark.slow  # trains
def test_a_part_runs_and_is_not_run_twice(tmp_path):
  trained = part(tmp_path)
  assert 'train  step' in trained.stderr
  again = part(tmp_path)
  assert 'train  step' not in again.stderr
  table = (tmp_path / 'b.md').read_text()
  assert table in again.stdout
  (row,) = [line for line in table.splitlines() if 'claims_pairs' in line]
  assert 'R+V' in row and '±' in row
  folder = tmp_path / 'b' / 'claims_pairs' / 'R+V'
  assert [run.steps[-1] for run in runs.read(str(folder))] == [2, 2]


def part(folder):
  """Runs one model of a part, with two seeds."""
  words = ('b', '--out', folder, '--models', 'R+V', '--steps', '2')
  done = subprocess.run(
    [
      *(sys.executable, CHECKOUT / 'benchmarks' / 'claims.py', *words),
      *('--seeds', '0', '1'),
    ],
    capture_output=True,
    text=True,
    check=False,
    env={**os.environ, 'PYTHONPATH': str(CHECKOUT), 'PYTHONWARNINGS': 'ignore'},
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done
