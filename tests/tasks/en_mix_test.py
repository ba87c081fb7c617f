"""Mixtures: T5's tasks at T5's rates, counted."""

import collections
import json

import gin
import numpy as np
import pytest
import seqio
import tensorflow.compat.v1 as tf

from synth_mtf import tasks
from tests.tasks import comparison, t5_agreement_test
from tests.tasks.rows import run

_COUNTED = 10_000


@pytest.fixture
def data_dir(official_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(official_data))
  return official_data


def _named(name):
  return {task.name for task in seqio.MixtureRegistry.get(name).tasks}


def test_en_mix_has_the_tasks_of_t5s():
  ours = _named('synth_en_mix_with_c4')
  t5_own = {f'synth_{name}' for name in _named('en_mix')}
  test_sets_only = {
    f'synth_{name}'
    for name in ('glue_ax_v002', 'super_glue_axb_v102', 'super_glue_axg_v102')
  }
  t5_own -= test_sets_only | {'synth_c4_v020_unsupervised'}
  assert ours == t5_own | {'synth_c4_span_corruption'}
  assert _named('synth_en_mix') == t5_own
  assert _named('synth_glue') | _named('synth_super_glue') == t5_own - {
    'synth_squad_v010_allanswers'
  }


def test_every_task_is_compared_with_t5s():
  compared = {f'synth_{name}' for name in t5_agreement_test.SPLITS}
  compared |= {f'synth_{t5_agreement_test.DPR}', 'synth_c4_span_corruption'}
  assert _named('synth_en_mix_with_c4') <= compared


def _rows(folder):
  """How many examples some of the training files have, counted by hand."""

  def lines(name):
    return (folder / name).read_text(encoding='utf-8').splitlines()

  multirc = map(json.loads, lines('superglue/MultiRC/train.jsonl'))
  squad = json.loads((folder / 'squad/train-v1.1.json').read_text())
  return {
    'synth_glue_cola_v002': len(lines('glue/CoLA/train.tsv')),
    'synth_glue_rte_v002': len(lines('glue/RTE/train.tsv')) - 1,
    'synth_super_glue_boolq_v102': len(lines('superglue/BoolQ/train.jsonl')),
    'synth_super_glue_multirc_v102': sum(
      len(question['answers'])
      for row in multirc
      for question in row['passage']['questions']
    ),
    'synth_squad_v010_allanswers': sum(
      len(paragraph['qas'])
      for article in squad['data']
      for paragraph in article['paragraphs']
    ),
  }


def test_rates_are_numbers_of_examples_up_to_the_maximum(data_dir):
  mixture = tasks.get('synth_en_mix')
  rates = {
    task.name: mixture.get_rate(task)
    for task in mixture.tasks
    if 'train' in task.splits
  }
  expected = _rows(data_dir)
  assert {name: rates[name] for name in expected} == expected
  maximum = sorted(rates.values())[len(rates) // 2]
  with gin.unlock_config():
    gin.bind_parameter('rate_num_examples.maximum', maximum)
  for task in mixture.tasks:
    if 'train' in task.splits:
      assert mixture.get_rate(task) == min(rates[task.name], maximum)


def test_c4_has_t5s_constant_rate(data_dir):
  mixture = tasks.get('synth_en_mix_with_c4')
  c4 = tasks.get('synth_c4_span_corruption')
  assert mixture.get_rate(c4) == 1e6
  with gin.unlock_config():
    gin.bind_parameter('rate_unsupervised.value', 710_000)
  assert mixture.get_rate(c4) == 710_000


@pytest.mark.slow  # reads every task
def test_mixed_examples_occur_at_their_rates(data_dir):
  """10,000 examples of en_mix, each tagged with its task, are counted."""
  mixture = tasks.get('synth_en_mix')
  having = [task for task in mixture.tasks if 'train' in task.splits]
  rates = np.array([mixture.get_rate(task) for task in having])

  def sample(datasets, weights, seed):
    assert list(weights) == rates.tolist()
    tagged = [
      tf.data.Dataset.from_tensors({'task': np.int64(i)}).repeat()
      for i in range(len(datasets))
    ]
    return tf.data.Dataset.sample_from_datasets(
      tagged, weights, seed, stop_on_empty_dataset=True
    )

  counted = seqio.Mixture(
    'counted',
    [(task, mixture.get_rate(task)) for task in mixture.tasks],
    sample_fn=sample,
  )
  rows = run(
    lambda: counted.get_dataset({'inputs': 64, 'targets': 32}, 'train', seed=5),
    _COUNTED,
  )
  counts = collections.Counter(int(row['task']) for row in rows)
  expected = _COUNTED * rates / rates.sum()
  for i, task in enumerate(having):
    # Five standard deviations of a binomial count.
    spread = 5 * np.sqrt(expected[i]) + 1
    assert abs(counts[i] - expected[i]) <= spread, task.name


@pytest.mark.slow  # reads every task, twice
def test_stream_of_the_mixture_repeats_with_its_seed(data_dir):
  lengths = {'inputs': 512, 'targets': 16}
  streams = [
    [
      row['inputs'].tobytes()
      for row in run(
        lambda: tasks.get('synth_super_glue').get_dataset(
          lengths, 'train', seed=7
        ),
        100,
      )
    ]
    for _ in range(2)
  ]
  assert streams[0] == streams[1]
  assert len(set(streams[0])) > 90


def test_check_without_a_folder_leaves_tfds_alone(tmp_path):
  """Nothing is downloaded; what TFDS does not have yet is no fault."""
  with comparison.tfds_at(str(tmp_path)):
    tasks.check(['synth_en_mix'], ['train', 'validation'])
  assert not list(tmp_path.iterdir())


def test_translation_mixes_the_three_pairs(tmp_path):
  """One mixture for the heads study: each pair at the rate of its examples."""
  for folder, languages, pairs in (
    ('wmt14_en_de', ('en', 'de'), 30),
    ('wmt14_en_fr', ('en', 'fr'), 60),
    ('wmt16_en_ro', ('en', 'ro'), 10),
  ):
    for language in languages:
      path = tmp_path / 'parallel' / folder / f'train.{language}'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(f'A sentence in {language}.\n' * pairs)
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(tmp_path))
  mixture = tasks.get('synth_translation')
  assert {t.name: mixture.get_rate(t) for t in mixture.tasks} == {
    'synth_wmt14_ende_v003': 30,
    'synth_wmt14_enfr_v003': 60,
    'synth_wmt16_enro_v003': 10,
  }
  rows = run(
    lambda: mixture.get_dataset({'inputs': 99, 'targets': 99}, 'train', seed=1),
    300,
  )
  prefixes = collections.Counter(
    tasks.VOCABULARY.decode(row['inputs'].tolist()).partition(':')[0]
    for row in rows
  )
  assert set(prefixes) == {
    f'translate English to {language}'
    for language in ('German', 'French', 'Romanian')
  }
  assert 140 < prefixes['translate English to French'] < 220
