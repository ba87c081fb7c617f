"""Which tasks there are, and the rows and rates that they have."""

import re

import gin
import pytest
import seqio
from t5.data import glue_utils

from synth_mtf import tasks
from synth_mtf.tasks import inspection, released
from synth_mtf.tasks.files.index import FileIndex
from synth_mtf.tasks.files.source import TwoSources
from synth_mtf.tasks.inspection import SplitRows
from tests.conftest import CHECKOUT
from tests.tasks import folder

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
  for name in inspection.task_names():
    source = seqio.TaskRegistry.get(name).source
    known = released.ROWS.get(name[len('synth_') :], {})
    if source.tfds:
      assert set(known) == set(source.split_files), name
  ours = {name[len('synth_') :] for name in inspection.task_names()}
  assert set(released.ROWS) <= ours


@pytest.mark.parametrize('name,split', _COMPLETE)
def test_complete_files_have_them(name, split, real_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(real_data))
  task = tasks.get(f'synth_{name}')
  (found,) = (s for s in inspection.splits_of(task) if s.split == split)
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


@pytest.mark.parametrize('name', inspection.task_names())
def test_a_task_of_t5s_is_t5s_but_for_source_and_vocabulary(name):
  if name[len('synth_') :] not in seqio.TaskRegistry.names():
    return
  mine = seqio.TaskRegistry.get(name)
  t5_own = seqio.TaskRegistry.get(name[len('synth_') :])
  assert isinstance(mine.source, TwoSources)
  assert mine.source.tfds is t5_own.source
  assert mine.output_features is not t5_own.output_features
  assert mine.preprocessors == t5_own.preprocessors
  assert mine.metric_fns == t5_own.metric_fns
  assert mine.postprocessor is t5_own.postprocessor


def test_names_are_ours():
  for names in (inspection.task_names(), inspection.mixture_names()):
    assert names == sorted(names)
    assert all(name.startswith('synth_') for name in names)
  assert len(inspection.task_names()) > 25
  assert 'synth_en_mix' in inspection.mixture_names()


def test_rows_of_a_split():
  def split(*counts, **kwargs):
    files = [FileIndex('a', count) for count in counts]
    return SplitRows(folder.COLA, 'train', files, **kwargs)

  assert split(3, 4).rows == 7
  assert split(3, 4, counted=False).rows is None
  assert split().rows is None
  assert split(8_551).released == 'as released'
  assert split(8_550).released == '1 missing'
  assert split(8_551, counted=False).released == ''


def test_splits_of_files(data_dir):
  path = folder.write_cola(data_dir, 5)
  train, validation = inspection.splits_of(tasks.get(folder.COLA))
  assert (train.task, train.split, train.rows) == (folder.COLA, 'train', 5)
  (file,) = train.files
  assert (file.path, file.num_examples, file.num_faults) == (str(path), 5, 0)
  assert len(train.digest(train.files)) == 16
  assert (validation.split, validation.files) == ('validation', ())
  assert 'no file glue/CoLA/dev.tsv' in validation.missing
  path.write_bytes(path.read_bytes().replace(b'x\t1', b'x\t7', 1))
  train, _ = inspection.splits_of(tasks.get(folder.COLA))
  (file,) = train.files
  assert (file.num_examples, file.num_faults) == (4, 1)
  assert f'{path}:2' in file.faults[0]


def test_a_task_over_tfds_has_no_files_to_look_at():
  task = tasks.get(folder.COLA)
  assert inspection.files_of(task) is None
  assert list(inspection.splits_of(task)) == []


def test_rates_count_the_files_that_exist(data_dir):
  folder.write_cola(data_dir, 5)
  rates = {r.task: r for r in inspection.rates_of(tasks.get('synth_glue'))}
  counted = rates[folder.COLA]
  assert (counted.rows, counted.known, counted.rate) == (5, 'files', 5)
  rte = rates['synth_glue_rte_v002']
  assert (rte.rows, rte.known, rte.rate) == (2_490, 'released', 2_490)
