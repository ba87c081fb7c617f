"""`synth-mtf tasks`: lists, rates and examples, without a download."""

import json
import pathlib

import pytest
import seqio
import tensorflow_datasets as tfds

from synth_mtf import cli, tasks


@pytest.fixture
def show(capsys, monkeypatch, tmp_path):
  """Runs the command; returns its status and what it printed."""
  for name in ('DATA_DIR', 'VOCABULARY'):
    monkeypatch.delenv(f'SYNTH_MTF_{name}', raising=False)
    monkeypatch.setenv(f'SYNTH_MTF_{name}', '')  # put back afterwards
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path / 'index'))

  def no_download(*unused_args, **unused_kwargs):
    raise AssertionError('TFDS was asked')

  monkeypatch.setattr(tfds, 'builder', no_download)
  monkeypatch.setattr(tfds, 'load', no_download)
  monkeypatch.setattr(seqio.LazyTfdsLoader, 'builder', property(no_download))

  def run(*words):
    status = cli.main(['tasks', *words])
    return status, capsys.readouterr().out

  return run


@pytest.fixture
def data_dir(tmp_path) -> pathlib.Path:
  folder = tmp_path / 'data'
  rows = b''.join(b'x\t%d\t\tSentence %d.\n' % (i % 2, i) for i in range(30))
  boolq = [
    {'question': f'is it {i}', 'passage': 'It is.', 'idx': i, 'label': True}
    for i in range(10)
  ]
  files = {
    'glue/CoLA/train.tsv': rows,
    'glue/CoLA/dev.tsv': rows[: len(rows) // 2].rpartition(b'\n')[0] + b'\n',
    'superglue/BoolQ/train.jsonl': ''.join(
      json.dumps(row) + '\n' for row in boolq
    ).encode(),
    'corpus/a.txt': b'\n\n'.join(
      b'A text of some twenty characters and more, number %d.' % i
      for i in range(60)
    ),
  }
  for name, data in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
  return folder


def _line(report, name):
  """Returns the words of a mixture's line of a task."""
  (line,) = (x for x in report.splitlines() if x.startswith(f'  {name} '))
  return line.split()


def test_lists_what_is_released_without_a_folder(show):
  status, report = show()
  assert status == 0
  assert report.startswith('No data folder is set')
  assert '392,702   9,815+9,832   9,796+9,847  TFDS glue/mnli:1' in report
  assert 'TFDS super_glue/wsc.fixed:1.0.2' in report
  assert report.count('synth_translation') == 1
  assert '40,836,715  released          40,836,715    88.86%' in report


def test_lists_the_rows_of_files(show, data_dir):
  status, report = show(f'--data_dir={data_dir}')
  assert status == 0
  cola = [x for x in report.splitlines() if x.startswith('synth_glue_cola')]
  assert cola[0].split() == [
    'synth_glue_cola_v002',
    '30',
    '15',
    '-',
    'official',
    'files',
  ]
  assert 'missing' in next(
    x for x in report.splitlines() if x.startswith('synth_glue_rte')
  )


def test_a_task_with_two_examples(show, data_dir):
  status, report = show('synth_glue_cola_v002', f'--data_dir={data_dir}')
  assert status == 0
  assert 'metrics  sklearn_metrics_wrapper(matthews_corrcoef)' in report
  assert f'30 rows, 8,521 missing: {data_dir}/glue/CoLA/train.tsv' in report
  assert '  inputs:  cola sentence: Sentence 0.\n' in report
  assert '  targets: unacceptable\n' in report
  assert '  inputs:  cola sentence: Sentence 1.\n' in report
  assert 'Sentence 2.' not in report


@pytest.mark.slow  # reads text again and again
def test_noise_is_shown_with_its_sentinels(show, data_dir):
  status, report = show('synth_text_span_corruption', f'--data_dir={data_dir}')
  assert status == 0
  inputs = report[report.index('inputs:') : report.index('targets:')]
  assert '<extra_id_0>' in inputs
  assert '<extra_id_0>' in report[report.index('targets:') :]


def test_a_mixture_with_its_rates(show, data_dir):
  status, report = show(
    'synth_super_glue',
    f'--data_dir={data_dir}',
    '--gin_param=rate_num_examples.maximum = 1000',
  )
  assert status == 0
  # Of what is there the rows are counted, the rest is as released; DPR, which
  # is no part of the benchmark, is left out as in a run.
  assert _line(report, 'synth_super_glue_boolq_v102')[1:4] == [
    '10',
    'files',
    '10',
  ]
  assert _line(report, 'synth_super_glue_cb_v102')[1:4] == [
    '250',
    'released',
    '250',
  ]
  assert _line(report, 'synth_super_glue_record_v102')[3] == '1,000'
  assert 'synth_dpr' not in report
  assert 'synth_super_glue_boolq_v102, train\n' in report
  assert 'inputs:  boolq passage: It is. question: is it 0\n' in report


def test_rates_are_those_that_a_run_draws_by(show, data_dir, monkeypatch):
  monkeypatch.setenv('SYNTH_MTF_DATA_DIR', str(data_dir))
  _, report = show('synth_glue')
  mixture = tasks.get('synth_glue')
  rate = mixture.get_rate(tasks.get('synth_glue_cola_v002'))
  assert _line(report, 'synth_glue_cola_v002')[3] == f'{rate:.0f}' == '30'


def test_says_what_is_missing(show, data_dir):
  status, report = show('synth_glue_rte_v002', f'--data_dir={data_dir}')
  assert status == 1
  assert 'no file glue/RTE/train.tsv or ' in report


def test_says_that_nothing_is_downloaded(show):
  status, report = show('synth_glue_rte_v002')
  assert status == 1
  assert 'train                 2,490 rows are released' in report
  assert 'Set --data_dir to a folder' in report


def test_malformed_rows_are_listed(show, data_dir):
  path = data_dir / 'glue/CoLA/dev.tsv'
  path.write_bytes(b'x\t7\t\tA sentence.\n')
  status, report = show('synth_glue_cola_v002', f'--data_dir={data_dir}')
  assert status == 1
  assert f"{path}:1: the label '7'" in report
  assert 'inputs:' not in report


def test_mistakes(show, data_dir, capsys):
  assert cli.main(['tasks', 'glue_cola']) == 2
  assert 'synth_glue_cola_v002' in capsys.readouterr().err
  assert cli.main(['tasks', '--data_dir=/nowhere']) == 2
  assert '/nowhere does not exist' in capsys.readouterr().err
