"""Mixtures: T5's tasks at T5's rates, counted."""

import gin
import pytest
import seqio

from synth_mtf import tasks
from tests.tasks import comparison


@pytest.fixture
def data_dir(official_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(official_data))
  return official_data


def _named(name):
  return {task.name for task in seqio.MixtureRegistry.get(name).tasks}


def test_en_mix_has_the_tasks_of_t5s():
  ours = _named('synth_en_mix_with_c4')
  tests_only = {'glue_ax_v002', 'super_glue_axb_v102', 'super_glue_axg_v102'}
  others = {*tests_only, 'c4_v020_unsupervised'}
  t5_own = {f'synth_{name}' for name in _named('en_mix') - others}
  assert ours == t5_own | {'synth_c4_span_corruption'}
  assert _named('synth_en_mix') == t5_own
  assert _named('synth_glue') | _named('synth_super_glue') == t5_own - {
    'synth_squad_v010_allanswers'
  }


def _rates(mixture):
  return {
    task.name: mixture.get_rate(task)
    for task in mixture.tasks
    if 'train' in task.splits
  }


def test_rates_are_numbers_of_examples_up_to_the_maximum(data_dir):
  mixture = tasks.get('synth_en_mix')
  rates = _rates(mixture)
  assert len(rates) >= 17  # the real files are without DPR
  for name, rate in rates.items():
    assert rate == tasks.get(name).num_input_examples('train')
  maximum = sorted(rates.values())[len(rates) // 2]
  with gin.unlock_config():
    gin.bind_parameter('rate_num_examples.maximum', maximum)
  limited = {name: min(rate, maximum) for name, rate in rates.items()}
  assert _rates(mixture) == limited


def test_c4_has_t5s_constant_rate(data_dir):
  mixture = tasks.get('synth_en_mix_with_c4')
  c4 = tasks.get('synth_c4_span_corruption')
  assert mixture.get_rate(c4) == 1e6
  with gin.unlock_config():
    gin.bind_parameter('rate_unsupervised.value', 710_000)
  assert mixture.get_rate(c4) == 710_000


def test_check_without_a_folder_leaves_tfds_alone(tmp_path):
  """Nothing is downloaded; what TFDS does not have yet is no fault."""
  with comparison.tfds_at(str(tmp_path)):
    tasks.check(['synth_en_mix'], ['train', 'validation'])
  assert not list(tmp_path.iterdir())


def test_translation_mixes_the_three_pairs_at_t5s_rates(data_dir):
  mixture = tasks.get('synth_translation')
  pairs = {'wmt14_ende', 'wmt14_enfr', 'wmt16_enro'}
  assert _named('synth_translation') == {f'synth_{p}_v003' for p in pairs}
  task = tasks.get('synth_wmt14_ende_v003')
  assert mixture.get_rate(task) == task.num_input_examples('train')
