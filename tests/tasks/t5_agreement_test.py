"""GLUE, SuperGLUE, DPR and SQuAD: T5's examples from the official files."""

import gin
import pytest
import seqio

from synth_mtf import tasks
from tests.tasks import comparison, folder
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
  **{
    f'super_glue_{name}_v102': ('train', 'validation')
    for name in ('boolq', 'cb', 'copa', 'multirc', 'record', 'rte', 'wic')
  },
  'super_glue_wsc_v102_simple_train': ('train',),
  'super_glue_wsc_v102_simple_eval': ('validation',),
  'squad_v010_allanswers': ('train', 'validation'),
}
DPR = 'dpr_v001_simple'


@comparison.each_split(
  SPLITS,
  fast=(
    'glue_stsb_v002',
    'super_glue_record_v102',
    'super_glue_wsc_v102_simple_train',
    'squad_v010_allanswers',
  ),
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


def _rows_of(name, split='train'):
  return run(lambda: tasks.get(name).source.get_dataset(split, shuffle=False))


def test_quote_characters_are_text(data_dir):
  folder.write(
    data_dir / 'glue/CoLA/train.tsv',
    b'gj04\t1\t\tThey drank the pub dry.\n'
    b'gj04\t1\t\tThe "car" honked "its way.\n',
  )
  assert _rows_of(folder.COLA)[1]['sentence'] == b'The "car" honked "its way.'


def test_test_files_are_optional_and_have_no_labels(data_dir):
  task = tasks.get(folder.COLA)
  assert 'test' not in task.splits
  data = b'index\tsentence\n0\tA sentence.\n'
  folder.write(data_dir / 'glue/CoLA/test.tsv', data)
  assert 'test' in task.splits
  (row,) = _rows_of(folder.COLA, 'test')
  assert row['label'] == -1


def test_broken_rows_of_the_official_qqp_are_left_out(data_dir, caplog):
  header = b'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
  good = b'1\t2\t3\tWhy?\tHow?\t0\n'
  broken = b'2\t3\t4\tWhy is\nthat?\tHow?\t1\n'
  path = data_dir / 'glue/QQP/train.tsv'
  folder.write(path, header + good + broken + good)
  assert tasks.get('synth_glue_qqp_v002').num_input_examples('train') == 2
  with caplog.at_level('WARNING', logger='absl'):
    rows = _rows_of('synth_glue_qqp_v002')
  assert [row['idx'] for row in rows] == [0, 3]
  assert ':3: a broken row; left out' in caplog.text
  assert '2 in the file' in caplog.text
