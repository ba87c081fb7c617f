"""GLUE, SuperGLUE, DPR and SQuAD: T5's examples from the official files."""

import pytest

from synth_mtf import tasks
from tests.tasks import comparison, folder
from tests.tasks.rows import run

_BOTH = ('train', 'validation')
SPLITS = {
  **{
    f'glue_{name}_v002': _BOTH
    for name in ['cola', 'sst2', 'mrpc', 'stsb', 'qqp', 'qnli', 'rte', 'wnli']
  },
  'glue_mnli_v002': ('train', 'validation_matched', 'validation_mismatched'),
  'glue_mnli_matched_v002': ('validation',),
  'glue_mnli_mismatched_v002': ('validation',),
  **{
    f'super_glue_{name}_v102': _BOTH
    for name in ['boolq', 'cb', 'copa', 'multirc', 'record', 'rte', 'wic']
  },
  'super_glue_wsc_v102_simple_train': ('train',),
  'super_glue_wsc_v102_simple_eval': ('validation',),
  'squad_v010_allanswers': _BOTH,
}
DPR = 'dpr_v001_simple'
FAST = [('glue_stsb_v002', 'train'), ('super_glue_record_v102', 'train')]


@pytest.mark.sampled
@pytest.mark.parametrize(
  'name, split',
  [
    pytest.param(
      *(name, split), marks=[] if (name, split) in FAST else pytest.mark.slow
    )
    for name, splits in SPLITS.items()
    for split in splits
  ],
)
def test_examples_are_those_of_t5(name, split, use_tfds, sample_data):
  comparison.three_ways(f'synth_{name}', split, sample_data, name)


@pytest.mark.slow  # one of many
@pytest.mark.parametrize('split, count', [('train', 40), ('test', 12)])
def test_dpr(split, count, made_data, prepared):
  """By TFDS's own parser; there are no real files of it."""
  files = {p: str(made_data / f'dpr/{p}.c.txt') for p in ('train', 'test')}
  prepared('definite_pronoun_resolution:1.1.0', files)
  rows = comparison.three_ways(f'synth_{DPR}', split, made_data, DPR)
  assert sum(rows.values()) == count


def test_test_files_are_optional_and_have_no_labels(data_dir):
  task = tasks.get(folder.COLA)
  assert 'test' not in task.splits
  data = b'index\tsentence\n0\tA sentence.\n'
  folder.write(data_dir / 'glue/CoLA/test.tsv', data)
  assert 'test' in task.splits
  (row,) = run(lambda: task.source.get_dataset('test', shuffle=False))
  assert row['label'] == -1
