"""`synth-mtf tasks`: lists, rates and examples, without a download."""

import json
import pathlib

import pytest
import seqio
import tensorflow_datasets as tfds

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks import inspection
from tests.cli.command import run
from tests.tasks import folder

MODULE = """
import seqio
import tensorflow as tf

def rows(split, shuffle_files=False, seed=None):
  return tf.data.Dataset.from_tensors({'inputs': 'a bird', 'targets': 'sang'})

FEATURE = seqio.Feature(seqio.ByteVocabulary())
for name in ('own_a', 'own_b'):
  seqio.TaskRegistry.add(
    name,
    source=seqio.FunctionDataSource(
      rows, splits=['train'], num_input_examples={'train': 1}
    ),
    preprocessors=[
      seqio.preprocessors.tokenize,
      seqio.CacheDatasetPlaceholder(),
      seqio.preprocessors.append_eos,
    ],
    output_features={'inputs': FEATURE, 'targets': FEATURE},
  )
RATES = [('own_a', lambda _: 3.0), ('own_b', seqio.mixing_rate_num_examples)]
seqio.MixtureRegistry.add('own_mix', RATES)
for name, rate in {
  'none': 0.0, 'negative': -1.0, 'nan': float('nan'), 'fails': lambda _: 1 / 0
}.items():
  seqio.MixtureRegistry.add(f'own_{name}', [('own_a', rate)])
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
  (tmp_path / 'own_tasks.py').write_text(MODULE)
  monkeypatch.syspath_prepend(tmp_path)
  yield '--module_import=own_tasks'
  for name in ('mix', 'none', 'negative', 'nan', 'fails'):
    seqio.MixtureRegistry.remove(f'own_{name}')
  for name in ('own_a', 'own_b'):
    seqio.TaskRegistry.remove(name)


def test_tasks_of_a_module(module, tmp_path):
  status, report = show('own_mix', module)
  assert (status, 'targets: sang' in report) == (0, True)
  assert _line(report, 'own_a')[1:] == ['1', 'module', '3.0000', '75.00%']
  status, report = show('own_b', module)
  assert (status, 'source   FunctionDataSource' in report) == (0, True)
  words = ['--task=own_mix', '--vocabulary=bytes', f'--out={tmp_path}/cache']
  status, report, _ = run('cache', module, *words)
  assert (status, 'own_b  train' in report) == (0, True)
  _, _, error = run('tasks', 'own_mix', '--module_import=nosuch')
  assert '--module_import nosuch: ModuleNotFoundError: No module' in error
  for name, message in (
    ('none', r'all rates of the mixture own_none are 0 \(own_a\)'),
    ('negative', 'own_a in the mixture own_negative is -1.0; expected a numb'),
    ('nan', 'own_a in the mixture own_nan is nan; expected a number that'),
    ('fails', 'own_a in the mixture own_fails fails: ZeroDivisionError: div'),
  ):
    with pytest.raises(UserError, match=message):
      inspection.check_rates(f'own_{name}', 'train')
  inspection.check_rates('own_mix', 'train')
  _, _, error = run('tasks', 'own_fails', module)
  assert 'fails: ZeroDivisionError' in error


def show(*words):
  """Returns the status and what was printed."""
  return run('tasks', *words)[:2]


@pytest.fixture(autouse=True)
def _no_download(monkeypatch):
  def fail(*unused_args, **unused_kwargs):
    raise AssertionError('TFDS was asked')

  monkeypatch.setattr(tfds, 'builder', fail)
  monkeypatch.setattr(tfds, 'load', fail)
  monkeypatch.setattr(seqio.LazyTfdsLoader, 'builder', property(fail))


@pytest.fixture
def data_dir(tmp_path) -> pathlib.Path:
  data = tmp_path / 'data'
  path = folder.write_cola(data, 30)
  folder.write(path.with_name('dev.tsv'), b'x\t1\t\tA sentence.\n' * 15)
  row = {'question': 'is it', 'passage': 'It is.', 'idx': 0, 'label': True}
  boolq = json.dumps(row).encode() + b'\n'
  folder.write(data / 'superglue/BoolQ/train.jsonl', boolq * 10)
  texts = [
    b'A text of some twenty characters, number %d.' % i for i in range(60)
  ]
  folder.write(data / 'corpus/a.txt', b'\n\n'.join(texts))
  news = b'"3","Stocks","They fell."\n'
  folder.write(data / 'ag_news_csv/test.csv', news)
  return data


def _line(report, name):
  """Returns the words of the first line about a task."""
  (words, *_) = (x.split() for x in report.splitlines() if f'{name} ' in x)
  return words


def test_lists_what_is_released_without_a_folder():
  status, report = show()
  assert status == 0
  assert report.startswith('No data folder is set')
  mnli = ' '.join(_line(report, 'synth_glue_mnli_v002'))
  assert 'TFDS glue/mnli:1' in mnli
  assert 'train 392,702, validation_matched 9,815, test_matched 9,7' in mnli
  assert _line(report, 'synth_personachat')[1:3] == ['needs', '--data_dir']
  assert report.count('synth_translation') == 1
  shares = ' '.join(report.split())
  assert '40,836,715 released 40,836,715 88.86%' in shares


def test_lists_the_rows_of_files(data_dir):
  status, report = show(f'--data_dir={data_dir}')
  assert status == 0
  cola = 'synth_glue_cola_v002 official files train 30, validation 15'
  assert _line(report, 'synth_glue_cola_v002') == cola.split()
  assert 'validation missing' in ' '.join(_line(report, 'synth_glue_rte_v002'))


def test_a_task_with_two_examples(data_dir):
  status, report = show('synth_glue_cola_v002', f'--data_dir={data_dir}')
  assert status == 0
  assert 'metrics  sklearn_metrics_wrapper(matthews_corrcoef)' in report
  found = _line(report, 'synth_glue_cola_v002')
  assert found[1:6] == ['train', '30', '8,521', 'missing', '0']
  assert found[-1] == 'glue/CoLA/train.tsv'
  assert '  inputs:  cola sentence: Sentence 0.\n' in report
  assert '  targets: unacceptable\n' in report
  assert '  inputs:  cola sentence: Sentence 1.\n' in report
  assert 'Sentence 2.' not in report


@pytest.mark.parametrize(
  'name, targets',
  [
    # Tokens are noise, not words.
    pytest.param(
      'synth_text_span_corruption', '<extra_id_0>', marks=pytest.mark.slow
    ),
    ('synth_ag_news_class', '[3]'),  # a class
  ],
)
def test_targets_that_are_not_text(name, targets, data_dir):
  status, report = show(name, f'--data_dir={data_dir}')
  assert status == 0
  inputs, shown = report.split('inputs:')[1].split('targets:')
  assert targets in shown
  assert ('<extra_id_0>' in inputs) == ('<' in targets)


def test_text_that_changes(tmp_path):
  """The answer that is remembered is of these bytes."""
  path = tmp_path / 'my.txt'
  for word in ('boats', 'birds'):
    path.write_text(f'There were many {word}.\n\nSome sang.\n')
    status, report = show(folder.TEXT, f'--text={path}', '--vocabulary=bytes')
    assert (status, word in report) == (0, True)


def test_a_mixture_with_its_rates(data_dir):
  flags = f'--data_dir={data_dir}', '--gin_param=rate_num_examples.maximum=1000'
  status, report = show('synth_super_glue', *flags)
  assert status == 0
  # Of what is there the rows are counted, the rest is as released; DPR, which
  # is no part of the benchmark, is left out as in a run.
  for name, rates in {
    'boolq': ['10', 'files', '10'],
    'cb': ['250', 'released', '250'],
    'record': ['100,730', 'released', '1,000'],
  }.items():
    assert _line(report, f'synth_super_glue_{name}_v102')[1:4] == rates
  assert 'synth_dpr' not in report
  assert 'synth_super_glue_boolq_v102, train\n' in report
  assert 'inputs:  boolq passage: It is. question: is it\n' in report


@pytest.mark.parametrize(
  'row, status, message',
  [
    (b'0\tcut', 0, 'odd    {}:3: a broken row; left out'),
    (b'0\ta\tb\tmaybe', 1, "{}:3: the label 'maybe'"),
  ],
)
def test_rows_that_are_left_out(data_dir, row, status, message):
  """In the list of all tasks, and of a mixture."""
  path = data_dir / 'glue/RTE/train.tsv'
  head = b'index\tsentence1\tsentence2\tlabel\n0\tA\tB\tentailment\n'
  folder.write(path, head + row + b'\n')
  found, report = show(f'--data_dir={data_dir}')
  assert (found, report.count(message.format(path))) == (status, 1)
  assert report.count('RTE/train.tsv:3: ') == 1
  found, report = show('synth_glue', f'--data_dir={data_dir}')
  assert (found, message.format(path) in report) == (status, True)
  assert ('inputs:' in report) == (status == 0)


def test_rates_are_those_that_a_run_draws_by(data_dir, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(data_dir))
  _, report = show('synth_glue')
  mixture = tasks.get('synth_glue')
  rate = mixture.get_rate(tasks.get('synth_glue_cola_v002'))
  assert _line(report, 'synth_glue_cola_v002')[3] == f'{rate:.0f}' == '30'


@pytest.mark.parametrize(
  'words, status, message',
  [
    ('synth_glue_rte_v002', 1, 'train: 2,490 rows are released'),
    ('synth_glue_rte_v002', 1, 'Set --data_dir to a folder'),
    ('glue_rte_v002 --data_dir={}', 1, 'train: 2,490 rows are released'),
    ('glue_v002_proportional', 1, 'glue_rte_v002        2,490  released'),
    ('synth_translation', 1, 'Set --data_dir to a folder'),
    ('synth_glue_rte_v002 --data_dir={}', 1, 'no file glue/RTE/train.tsv or '),
    ('synth_glue_qqp_v002 --data_dir={}', 1, "dev.tsv:2: the label '7'"),
    ('glue_cola', 2, 'synth_glue_cola_v002'),
    ('--data_dir=/nowhere', 2, '/nowhere does not exist'),
  ],
)
def test_what_has_no_examples(data_dir, words, status, message):
  qqp = b'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
  row = b'1\t2\t3\tWhy?\tHow?\t7\n'
  folder.write(data_dir / 'glue/QQP/dev.tsv', qqp + row)
  found, out, err = run('tasks', *words.format(data_dir).split())
  assert (found, message in out + err) == (status, True)
  assert 'inputs:' not in out
