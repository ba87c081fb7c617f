"""benchmarks/claims.py: its tasks, and a part of it in a few steps."""

import itertools
import json
import re

import numpy as np
import pytest
import seqio
import tensorflow_datasets

from benchmarks import claims, claims_tasks, verdicts
from benchmarks.claims_parts import PARTS, Model
from benchmarks.windows import share_within
from tests import official_files
from tests.conftest import CHECKOUT


def rows(task, count):
  source = seqio.TaskRegistry.get(task).source
  dataset = source.get_dataset('validation', shuffle=False).take(count)
  return [
    (row['inputs'].decode(), row['targets'].decode())
    for row in tensorflow_datasets.as_numpy(dataset)
  ]


def examples(task, lengths, count):
  """The token ids of the first examples, as the models get them."""
  dataset = seqio.get_mixture_or_task(task).get_dataset(
    lengths._asdict(), 'validation', shuffle=False
  )
  return [*tensorflow_datasets.as_numpy(dataset.take(count))]


def text(ids):
  """The symbols of bytes, which are counted from 3."""
  return ''.join(chr(i - 3) for i in ids if i > 1)


def test_copy_and_reverse():
  assert rows('claims_copy', 5) == rows('claims_copy', 5)
  for inputs, targets in rows('claims_copy', 20):
    assert inputs == targets
    assert len(inputs) == claims_tasks.COPIED.inputs - 1
  for inputs, targets in rows('claims_reverse', 20):
    assert inputs == targets[::-1] != targets


def test_lookup_asks_for_the_pairs_of_the_inputs_in_another_order():
  moved = 0
  for inputs, targets in rows('claims_lookup', 200):
    pairs = [text[i : i + 2] for text in (inputs, targets) for i in (0, 2, 4)]
    assert sorted(pairs[:3]) == sorted(pairs[3:])
    assert len({pair[0] for pair in pairs}) == 3
    assert len(inputs) == claims_tasks.LOOKED_UP.inputs - 1
    moved += pairs[:3] != pairs[3:]
  assert moved > 150


@pytest.mark.parametrize(
  'make',
  [
    claims_tasks.looked_up_row,
    claims_tasks.recalled_row,
    claims_tasks.pair_row,
    claims_tasks.single_row,
  ],
)
def test_no_validation_row_is_a_training_row(make):
  validation, train = (
    [tuple(row.values()) for row in itertools.islice(rows, 5000)]
    for rows in (
      claims_tasks.rows_of(make, split) for split in ('validation', 'train')
    )
  )
  assert (len(validation), len(train)) == (1024, 5000)
  assert not {*validation} & {*train}


def test_the_numbers_of_seeds_are_kept(tmp_path):
  model = Model('R', ['random'])
  trainings = [
    claims.Training(PARTS['a'], 'claims_copy', model, seed, tmp_path, [], [])
    for seed in (3, 5)
  ]
  found = claims.of_seeds('value', trainings, lambda t: t.seed / 3)
  assert found == {
    'value': [1.3333, 0.4714],
    'value_of_seeds': {'3': 1.0, '5': 5 / 3},
  }


def test_sources_of_verdicts_have_the_steps_of_their_parts():
  for label, read in verdicts.SOURCES.items():
    if steps := read().steps:
      assert steps[1] == PARTS[label[0]].steps, label


def test_pairs_in_a_sequence_repeat_in_other_orders():
  moved = 0
  for example in examples('claims_recall', claims_tasks.RECALLED, 100):
    assert 'inputs' not in example
    symbols = text(example['targets'])
    assert len(symbols) == claims_tasks.RECALLED.targets
    pairs = [symbols[i : i + 2] for i in range(0, len(symbols), 2)]
    orders = [pairs[i : i + 2] for i in range(0, len(pairs), 2)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    moved += any(order != orders[0] for order in orders)
  assert moved > 60


def test_the_class_of_a_pair_depends_on_both_sentences():
  asked, ambiguous = set(), 0
  for inputs, answer in rows('claims_pair_text', 200):
    question, sentence, _ = inputs.split('|')
    keys, values = sentence[::2], sentence[1::2]
    assert values[keys.index(question)] == answer
    asked.add(keys.index(question))
    ambiguous += len({*values}) > 1
  assert asked == {0, 1, 2}
  assert ambiguous > 150


def test_the_class_of_a_single_sentence_ignores_the_question():
  for inputs, answer in rows('claims_single_text', 200):
    question, sentence, _ = inputs.split('|')
    assert sentence[1::2].count(answer) == 2
    assert question in sentence[::2]


@pytest.mark.parametrize('task', ['claims_pair', 'claims_single'])
def test_the_target_of_the_first_token_is_the_class(task):
  encoder = examples(task, claims_tasks.CLASSIFIED, 50)
  decoder = examples(f'{task}_text', claims_tasks.ANSWERED, 50)
  for found, expected in zip(encoder, decoder, strict=True):
    assert [*found['inputs']] == [*expected['inputs']]
    assert len(found['inputs']) == claims_tasks.CLASSIFIED.inputs
    (number,) = found['targets']
    assert chr(ord('A') + number - 1) == text(expected['targets'])
    assert [*found['targets_segmentation']] == [1] * len(found['inputs'])


def test_every_part_is_described():
  described = re.findall(r'^  (\w)  ', claims.__doc__, flags=re.M)
  assert described == [*PARTS]


def test_every_variant_of_a_part_exists():
  for letter, part in PARTS.items():
    names = [model.name for model in part.models]
    assert len(set(names)) == len(names), letter
    for model in part.models:
      for variant in model.variants:
        assert (CHECKOUT / 'gin' / 'variants' / f'{variant}.gin').exists()


def test_the_share_of_attention_within_a_window():
  length, window = 6, 2
  near = np.array([3, 4, 5, 5, 4, 3]) / 6  # tokens of the window, in each row
  even = np.full([2, length, length], 1 / length)
  assert share_within(even, window) == pytest.approx(near.mean())
  here = np.stack([np.eye(length), even[0]])  # a head looks at its own token
  assert share_within(here, window) == pytest.approx((1 + near.mean()) / 2)
  causal = np.tril(np.ones([length, length]))
  causal /= causal.sum(axis=-1, keepdims=True)
  of_rows = [1, 1, 1, 3 / 4, 3 / 5, 3 / 6]
  assert share_within(causal, window) == pytest.approx(np.mean(of_rows))


@pytest.mark.slow  # trains
@pytest.mark.parametrize('device', [[], ['--device=cpu']])
def test_where_language_models_look(tmp_path, device):
  text = official_files.write_text(tmp_path / 'data')
  options = ['--seeds', '3', '--steps', '2', '--out', str(tmp_path)]
  data = ['--data_dir', str(text)]
  claims.main(['n', *options, *device, *data, '--models', 'R'])
  (log,) = tmp_path.rglob('seed_3/log')
  assert ('SimdMeshImpl' in log.read_text()) == bool(device)
  (row,) = json.loads((tmp_path / 'n.json').read_text())['rows']
  # R is nearly even at the start.
  for share in row['share_at_first'], row['share']:
    assert share == [pytest.approx(0.25, abs=0.02)]


@pytest.mark.slow  # trains
def test_a_second_call_repeats_nothing(tmp_path):
  text = official_files.write_text(tmp_path / 'data')
  options = ['--seeds', '3', '--steps', '2', '--out', str(tmp_path)]
  words = ['c', *options, '--models', 'V', 'R', '--data_dir', str(text)]
  claims.main(words)
  written = (tmp_path / 'c.json').read_text()
  results = json.loads(written)
  assert [row['model'] for row in results['rows']] == ['V', 'R']
  assert [[*row['value_of_seeds']] for row in results['rows']] == [['3']] * 2
  assert results['agreement'] in (-1, 1)
  done = {path: path.stat().st_mtime for path in tmp_path.rglob('*.done')}
  assert len(done) == 4
  claims.main(words)
  assert (tmp_path / 'c.json').read_text() == written
  assert done == {path: path.stat().st_mtime for path in done}


@pytest.mark.parametrize(
  'paper, tau',
  [
    ({'V': 5.0, 'R': 6.0, 'D': 7.0}, 1),
    ({'V': 7.0, 'R': 5.0, 'D': 6.0}, -1 / 3),
    ({'V': 7.0}, None),
  ],
)
def test_orders_are_compared_by_kendalls_tau(paper, tau):
  ours = {'V': 1.0, 'R': 2.0, 'D': 3.0, 'Fix': 0.0}
  assert claims.agreement(ours, paper) == (tau and pytest.approx(tau))
