"""The rows of the released files: T5's own figures, and the real files."""

import re

import gin
import pytest
import seqio
from t5.data import glue_utils

from synth_mtf import tasks
from synth_mtf.tasks import overview, released
from tests.conftest import CHECKOUT

# What T5 counts behind its preprocessors: an example for each answer of ReCoRD,
# and of WSC the rows whose referent is the right one.
_T5_COUNTS_OTHERWISE = {
  'super_glue_record_v102': 138_854,
  'super_glue_wsc_v102_simple_train': 259,
}
_T5_COUNTS = {
  **glue_utils.get_glue_weight_mapping(),
  **glue_utils.get_super_glue_weight_mapping(),
}
# The real files that are complete, of those that the tests may read.
_COMPLETE = [
  ('glue_cola_v002', 'train'),
  ('glue_mrpc_v002', 'train'),
  ('glue_mrpc_v002', 'validation'),
  ('glue_stsb_v002', 'train'),
  ('glue_rte_v002', 'train'),
  ('glue_wnli_v002', 'train'),
  ('super_glue_cb_v102', 'train'),
  ('super_glue_copa_v102', 'train'),
  ('super_glue_rte_v102', 'train'),
  ('super_glue_wsc_v102_simple_train', 'train'),
  ('wmt16_enro_v003', 'validation'),
]


@pytest.mark.parametrize('name', _T5_COUNTS)
def test_training_rows_are_t5s_weights(name):
  if name.split('_')[-2] in ('ax', 'axb', 'axg'):  # test sets that we have not
    return
  ours = released.rows(f'synth_{name}', 'train') or 0
  assert _T5_COUNTS[name] == _T5_COUNTS_OTHERWISE.get(name, ours)


def test_every_task_over_tfds_is_in_the_table():
  for name in overview.task_names():
    source = seqio.TaskRegistry.get(name).source
    known = released.ROWS.get(name[len('synth_') :], {})
    if source.tfds:
      assert set(known) == set(source.split_files), name
  ours = {name[len('synth_') :] for name in overview.task_names()}
  assert set(released.ROWS) <= ours


@pytest.mark.parametrize('name,split', _COMPLETE)
def test_complete_files_have_them(name, split, real_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(real_data))
  task = tasks.get(f'synth_{name}')
  (found,) = (s for s in overview.splits_of(task) if s.split == split)
  assert found.released == 'as released'
  assert found.rows == released.rows(task.name, split)


@pytest.mark.parametrize(
  'count,said',
  [
    (363_849, 'as released'),
    (363_846, 'as released (QQP-clean.zip)'),
    (363_847, '2 missing'),
    (364_850, '1,001 more'),
  ],
)
def test_counts_are_compared(count, said):
  assert released.compared('synth_glue_qqp_v002', 'train', count) == said
  assert not released.compared('synth_text_span_corruption', 'train', count)


def test_the_documents_have_the_table():
  text = (CHECKOUT / 'docs/data.md').read_text(encoding='utf-8')
  documented = {
    name: re.findall(r'[\d,]+', cells)
    for name, cells in re.findall(r'^\| `(\w+)` \| (.*) \|$', text, re.M)
  }
  assert documented == {
    name: [f'{count:,}' for count in splits.values()]
    for name, splits in released.ROWS.items()
  }
