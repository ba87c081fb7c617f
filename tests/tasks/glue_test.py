"""GLUE: T5's examples from its official TSV files."""

import gin
import pytest
import seqio

from synth_mtf import tasks
from tests.tasks import comparison
from tests.tasks.rows import run

SPLITS = {
  **{
    f'glue_{name}_v002': ('train', 'validation')
    for name in (
      *('cola', 'sst2', 'mrpc', 'stsb', 'qqp', 'qnli', 'rte', 'wnli'),
    )
  },
  'glue_mnli_v002': ('train', 'validation_matched', 'validation_mismatched'),
  'glue_mnli_matched_v002': ('validation',),
  'glue_mnli_mismatched_v002': ('validation',),
}


@comparison.each_split(SPLITS, fast=('glue_stsb_v002',))
def test_examples_are_those_of_t5(name, split, use_tfds, sample_data):
  comparison.three_ways(f'synth_{name}', split, sample_data, name)


@pytest.mark.parametrize('name', SPLITS)
def test_row_counts_are_those_of_tfds(name, use_tfds, sample_data):
  t5_own = seqio.TaskRegistry.get(name)
  expected = {s: t5_own.num_input_examples(s) for s in SPLITS[name]}
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(sample_data))
  ours = tasks.get(f'synth_{name}')
  assert {s: ours.num_input_examples(s) for s in SPLITS[name]} == expected


@pytest.fixture
def cola(tmp_path):
  """The folder of CoLA's files, in a data folder that has nothing else."""
  gin.bind_parameter('synth_mtf.tasks.settings.data_dir', str(tmp_path))
  folder = tmp_path / 'glue' / 'CoLA'
  folder.mkdir(parents=True)
  return folder


def rows_of(name, split='train'):
  return run(lambda: tasks.get(name).source.get_dataset(split, shuffle=False))


def test_quote_characters_are_text(cola):
  cola.joinpath('train.tsv').write_text(
    'gj04\t1\t\tThey drank the pub dry.\n'
    'gj04\t1\t\tThe "car" honked "its way.\n'
  )
  assert rows_of('synth_glue_cola_v002')[1]['sentence'] == (
    b'The "car" honked "its way.'
  )


def test_test_files_are_optional_and_have_no_labels(cola):
  task = tasks.get('synth_glue_cola_v002')
  assert 'test' not in task.splits
  cola.joinpath('test.tsv').write_text('index\tsentence\n0\tA sentence.\n')
  assert 'test' in task.splits
  (row,) = rows_of('synth_glue_cola_v002', 'test')
  assert row['label'] == -1


def test_broken_rows_of_the_official_qqp_are_left_out(cola, caplog):
  header = 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
  good = '1\t2\t3\tWhy?\tHow?\t0\n'
  broken = '2\t3\t4\tWhy is\nthat?\tHow?\t1\n'
  path = cola.parent / 'QQP' / 'train.tsv'
  path.parent.mkdir()
  path.write_text(header + good + broken + good)
  assert tasks.get('synth_glue_qqp_v002').num_input_examples('train') == 2
  with caplog.at_level('WARNING', logger='absl'):
    rows = rows_of('synth_glue_qqp_v002')
  assert [row['idx'] for row in rows] == [0, 3]
  assert ':3: a broken row; left out' in caplog.text
  assert '2 in the file' in caplog.text
