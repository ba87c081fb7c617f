"""benchmarks/claims.py: its tasks, and a part of it in a few steps."""

import collections
import itertools
import math
import statistics

import pytest
import seqio
import tensorflow_datasets

from benchmarks import _claims_tasks, claims
from benchmarks._claims_parts import PARTS, SYSTEMS
from benchmarks._contestants import whole_models
from synth_mtf.results import runs
from tests import official_files
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
    assert len(inputs) == _claims_tasks.COPIED.inputs - 1
  for inputs, targets in rows('claims_reverse', 20):
    assert inputs == targets[::-1] != targets


def test_what_is_looked_up_stands_in_the_inputs_in_another_order():
  moved = 0
  for inputs, targets in rows('claims_lookup', 200):
    pairs = [text[i : i + 2] for text in (inputs, targets) for i in (0, 2, 4)]
    assert sorted(pairs[:3]) == sorted(pairs[3:])
    assert len({pair[0] for pair in pairs}) == 3
    assert len(inputs) == _claims_tasks.LOOKED_UP.inputs - 1
    moved += pairs[:3] != pairs[3:]
  assert moved > 150


def test_what_the_note_says_of_what_is_looked_up():
  # The order of the keys is chance; the values and the end are none.
  order = math.log(6)
  assert f'{order / 7:.3f} is the best' in PARTS['b'].note
  # The order of the values is chance, too, but for those that are alike.
  alike = statistics.fmean(
    sum(map(math.lgamma, (n + 1 for n in collections.Counter(drawn).values())))
    for drawn in itertools.product(range(12), repeat=3)
  )
  assert f'{(2 * order - alike) / 7:.3f} that of one' in PARTS['b'].note


def test_rows_of_splits_differ_and_those_of_a_split_repeat():
  assert rows('claims_copy', 5) == rows('claims_copy', 5)
  train = seqio.TaskRegistry.get('claims_copy').source.get_dataset('train')
  assert train.element_spec['inputs'].dtype.name == 'string'


def test_every_variant_of_a_part_is_there():
  for letter, part in PARTS.items():
    names = [model.name for model in part.models]
    assert len(set(names)) == len(names), letter
    for model in part.models:
      for variant in model.variants:
        assert (CHECKOUT / 'gin' / 'variants' / f'{variant}.gin').exists()


@pytest.mark.slow  # trains
def test_equal_time_and_what_is_finetuned_from_it(tmp_path, capsys):
  data = official_files.write_text(tmp_path / 'data')
  official_files.write_samples(data)
  options = ['--data_dir', str(data), '--seeds', '3', '--steps', '2']
  options += ['--out', str(tmp_path)]
  text = ['c', *options, '--models', 'V', 'R']
  claims.main(text)
  table = capsys.readouterr().out
  written = (tmp_path / 'c.md').read_text()
  assert written in table
  (head,) = [line for line in table.splitlines() if '| task' in line]
  assert 'in the time of V' in head and 'the paper' in head
  (v,) = [line.split('|') for line in table.splitlines() if '| V ' in line]
  assert v[3].strip() == v[5].strip() and v[6].strip() == '2'
  assert "Kendall's tau" in table
  # What is done is not done again: the minutes are those of before.
  claims.main(text)
  assert written in capsys.readouterr().out
  with pytest.raises(SystemExit, match='is of another command'):
    claims.main([*text, '--data_dir', str(tmp_path)])
  task = 'synth_glue_cola_v002'
  claims.main(['d', *options, '--models', 'V', '--tasks', task])
  assert capsys.readouterr().out.count(f'| {task}') == 1
  folder = tmp_path / 'd' / task / 'V' / 'seed_3'
  (run,) = runs.read(str(folder))
  assert run.steps[-1] == 4


@pytest.mark.slow  # starts a training
def test_a_training_that_fails_shows_the_end_of_its_log(tmp_path):
  words = ['c', '--models', 'V', '--seeds', '0', '1', '2', '--jobs', '1']
  words += ['--out', str(tmp_path)]
  with pytest.raises(SystemExit, match='has failed: see .*log.txt') as failed:
    claims.main([*words, '--data_dir', str(tmp_path / 'nowhere')])
  assert 'synth-mtf: error: ' in str(failed.value)
  assert str(tmp_path / 'nowhere') in str(failed.value)
  assert not list(tmp_path.glob('c/*/V/seed_2'))


def test_the_speed_of_every_system_can_be_measured():
  names = {f'{model.variants[0]}, fast_cpu' for model in SYSTEMS}
  assert names <= set(whole_models())


def test_orders_are_compared_by_kendalls_tau():
  ours = {'V': 1.0, 'R': 2.0, 'D': 3.0, 'Fix': 0.0}
  assert '1.00 (3 models)' in claims.agreement(
    ours, {'V': 5.0, 'R': 6.0, 'D': 7.0}
  )
  assert '-0.33 (3 models)' in claims.agreement(
    ours, {'V': 7.0, 'R': 5.0, 'D': 6.0}
  )
