"""SQuAD: T5's examples from its official nested JSON."""

import gin
import pytest
import seqio

from synth_mtf import tasks
from tests.tasks import comparison

NAME = 'squad_v010_allanswers'
SPLITS = {NAME: ('train', 'validation')}


@comparison.each_split(SPLITS, fast=(NAME,))
def test_examples_are_those_of_t5(name, split, use_tfds, sample_data):
  comparison.three_ways(f'synth_{name}', split, sample_data, name)


@pytest.mark.parametrize('split', SPLITS[NAME])
def test_row_counts_are_those_of_tfds(split, use_tfds, sample_data):
  expected = seqio.TaskRegistry.get(NAME).num_input_examples(split)
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(sample_data))
  assert tasks.get(f'synth_{NAME}').num_input_examples(split) == expected
