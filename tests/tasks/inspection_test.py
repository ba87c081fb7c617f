"""Which tasks there are, and the rows and rates that they have."""

import hashlib
import pathlib
import re

import gin
import pytest
import seqio
from t5.data import glue_utils

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks import inspection
from synth_mtf.tasks.files import index
from synth_mtf.tasks.files.source import TwoSources
from synth_mtf.tasks.glue import GlueReader
from synth_mtf.tasks.inspection import SplitRows
from tests.tasks import folder, steps

_NAMES = inspection.names(seqio.TaskRegistry)
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
  *(f'glue_{n}_v002' for n in ('cola', 'mrpc', 'stsb', 'rte', 'wnli')),
  *(f'super_glue_{n}_v102' for n in ('cb', 'copa', 'rte')),
  'super_glue_wsc_v102_simple_train',
]


@pytest.mark.parametrize('name', _T5_COUNTS)
def test_training_rows_are_t5s_weights(name):
  if name.split('_')[-2] not in ('ax', 'axb', 'axg'):  # sets for tests only
    ours = inspection.released_rows(f'synth_{name}', 'train') or 0
    assert _T5_COUNTS[name] == _T5_COUNTS_OTHERWISE.get(name, ours)


def test_every_task_over_tfds_is_in_the_table():
  for name in _NAMES:
    source = seqio.TaskRegistry.get(name).source
    known = inspection.released_counts().get(name[len('synth_') :], {})
    if source.tfds:
      assert set(known) == set(source.split_files), name
  ours = {name[len('synth_') :] for name in _NAMES}
  assert set(inspection.released_counts()) <= ours


@pytest.mark.parametrize(
  'name, split',
  [
    *((name, 'train') for name in _COMPLETE),
    ('glue_mrpc_v002', 'validation'),
    ('wmt16_enro_v003', 'validation'),
  ],
)
def test_complete_files_have_them(name, split, real_data):
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(real_data))
  task = tasks.get(f'synth_{name}')
  (rows,) = inspection.splits_of(task, [split])
  assert rows.released == 'as released'
  assert rows.rows == inspection.released_rows(task.name, split)


def test_the_documentation_has_the_same_rows():
  guide = pathlib.Path(__file__).parents[2] / 'docs/data.md'
  lines = re.findall(r'^\| `(\w+)` \|(.*)\|$', guide.read_text(), re.MULTILINE)
  documented = {
    name: tuple(map(str.strip, row.split('|'))) for name, row in lines
  }
  assert documented == {
    name: tuple(
      ' + '.join(f'{counts[s]:,}' for s in counts if s.startswith(split))
      for split in ('train', 'validation', 'test')
    )
    for name, counts in inspection.released_counts().items()
  }


@pytest.mark.parametrize('name', _NAMES)
def test_a_task_of_t5s_is_t5s_but_for_source_and_vocabulary(name):
  if name[len('synth_') :] not in seqio.TaskRegistry.names():
    return
  mine = seqio.TaskRegistry.get(name)
  t5_own = seqio.TaskRegistry.get(name[len('synth_') :])
  assert isinstance(mine.source, TwoSources)
  assert mine.source.tfds is t5_own.source
  assert mine.output_features is not t5_own.output_features
  expected = [*map(steps.compared, t5_own.preprocessors)]
  assert [*map(steps.compared, mine.preprocessors)] == expected
  assert mine.metric_fns == t5_own.metric_fns
  assert mine.postprocessor is t5_own.postprocessor


@pytest.mark.parametrize(
  'counts, rows, compared',
  [
    ([3, 4], 7, '8,544 missing'),
    ([3, None], None, ''),
    ([8_551], 8_551, 'as released'),
    ([9_000, 552], 9_552, '1,001 more'),
    ([], 8_551, 'as released'),
  ],
)
def test_rows_of_a_split(counts, rows, compared):
  files = [index.FileIndex(GlueReader('cola', True), 'a', n) for n in counts]
  split = SplitRows(folder.COLA, 'train', files)
  assert (split.rows, split.released) == (rows, compared)
  assert not SplitRows(folder.TEXT, 'train', files[:1]).released


def test_splits_of_files(data_dir):
  path = folder.write_cola(data_dir, 5)
  train, validation = inspection.splits_of(tasks.get(folder.COLA))
  assert (train.task, train.split, train.rows) == (folder.COLA, 'train', 5)
  (file,) = train.files
  assert (file.path, file.num_examples, file.num_faults) == (str(path), 5, 0)
  digest = hashlib.blake2b(path.read_bytes(), digest_size=8)
  assert train.digest == digest.hexdigest()
  assert (validation.split, validation.files) == ('validation', ())
  assert 'no file glue/CoLA/dev.tsv' in validation.missing


def test_a_file_that_is_gone_is_named_with_its_setting(data_dir, monkeypatch):
  path = folder.write(data_dir / 'glue/CoLA/train.tsv', b'x\t1\t\tOne.\n')
  (split,) = inspection.splits_of(tasks.get(folder.COLA), ['train'])
  assert split.digest
  path.unlink()
  with pytest.raises(UserError, match=f'^--data_dir .*: {path} cannot be re'):
    _ = split.digest
  path.write_bytes(b'x\t1\t\tTwo.\n')
  monkeypatch.setenv('SYNTH_MTF_TASK_DATA_DIRS', f'*={data_dir}')
  (split,) = inspection.splits_of(tasks.get(folder.COLA), ['train'])
  path.unlink()
  with pytest.raises(UserError, match='^--task_data_dirs .* cannot be read'):
    _ = split.digest
