"""SuperGLUE and DPR: T5's examples from their official files."""

import gin
import pytest
import seqio

from synth_mtf import tasks
from tests.tasks import comparison

SPLITS = {
  **{
    f'super_glue_{name}_v102': ('train', 'validation')
    for name in ('boolq', 'cb', 'copa', 'multirc', 'record', 'rte', 'wic')
  },
  'super_glue_wsc_v102_simple_train': ('train',),
  'super_glue_wsc_v102_simple_eval': ('validation',),
}
DPR = 'dpr_v001_simple'


@comparison.each_split(
  SPLITS,
  fast=('super_glue_record_v102', 'super_glue_wsc_v102_simple_train'),
)
def test_examples_are_those_of_t5(name, split, use_tfds, sample_data):
  comparison.three_ways(f'synth_{name}', split, sample_data, name)


@pytest.mark.parametrize('name', SPLITS)
def test_row_counts_are_those_of_tfds(name, use_tfds, sample_data):
  t5_own = seqio.TaskRegistry.get(name)
  expected = {s: t5_own.num_input_examples(s) for s in SPLITS[name]}
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(sample_data))
  ours = tasks.get(f'synth_{name}')
  assert {s: ours.num_input_examples(s) for s in SPLITS[name]} == expected


@pytest.mark.slow  # one of many
@pytest.mark.parametrize('split', ['train', 'test'])
def test_dpr(split, made_data, prepared):
  """By TFDS's own parser; there are no real files of it."""
  files = {p: str(made_data / f'dpr/{p}.c.txt') for p in ('train', 'test')}
  prepared('definite_pronoun_resolution:1.1.0', files)
  rows = comparison.three_ways(f'synth_{DPR}', split, made_data, DPR)
  assert sum(rows.values()) == {'train': 40, 'test': 12}[split]
