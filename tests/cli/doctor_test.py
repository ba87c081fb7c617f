"""`synth-mtf doctor` on healthy and on broken machines and data."""

import os
import sys

import pytest
import tensorflow as tf

from tests.cli.command import run
from tests.run.process_test import MAIN, as_command
from tests.tasks.folder import write

QQP = b'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
ROW = b'1\t2\t3\tWhy?\tHow?\t0\n'


def doctor(data_dir, vocabulary='bytes'):
  """Returns the status and what was printed."""
  words = f'--data_dir={data_dir}', f'--vocabulary={vocabulary}'
  return run('doctor', *words)[:2]


def cells(report, name):
  return [line.split() for line in report.splitlines() if line.startswith(name)]


def test_a_healthy_machine(some_data):
  status, report = doctor(some_data)
  assert status == 0
  assert 'FAULT' not in report
  assert report.endswith('No faults.\n')
  assert f'ok     Python {sys.version_info.major}.' in report
  assert f'ok     tensorflow {tf.__version__}, tensorflow-estimator ' in report
  assert 'mesh-tensorflow 0.1.21' in report
  assert 'TensorFlow sees: 1 CPU' in report
  assert 'ok     vocabulary bytes: ' in report
  assert f'ok     data folder {some_data}: files of ' in report


def test_a_wrong_data_folder_and_vocabulary(tmp_path):
  status, report = doctor('/nowhere', tmp_path / 'none.model')
  assert status == 1
  assert "FAULT  vocabulary '" in report
  assert 'FAULT  data folder /nowhere: files of 0 tasks\n       -> ' in report
  assert report.endswith('2 faults.\n')


def test_folders_of_single_tasks(tmp_path, monkeypatch):
  write(tmp_path / 'glue/QQP/train.tsv', QQP + ROW)
  given = f'synth_glue_qqp*={tmp_path},synth_glue_rte*={tmp_path}'
  monkeypatch.setenv('SYNTH_MTF_TASK_DATA_DIRS', given)
  report = run('doctor')[1]
  assert f'ok     data folder {tmp_path}: files of 1 task\n' in report
  assert 'is set: other tasks read TensorFlow Datasets' in report
  assert 'synth_glue_rte_v002 train' in report.partition('missing: ')[2]


def test_missing_settings_are_notes():
  status, report, _ = run('doctor')
  assert status == 0
  assert "note   no vocabulary is set: T5's own, gs://" in report
  assert '--vocabulary=bytes' in report
  assert 'note   no data folder is set' in report


@pytest.mark.skipif(
  bool(tf.config.list_physical_devices('GPU')), reason='TensorFlow sees a GPU'
)
def test_a_gpu_that_tensorflow_does_not_see(monkeypatch, tmp_path):
  (tmp_path / 'nvidia-smi').touch(0o755)
  monkeypatch.setenv('PATH', str(tmp_path))
  report = doctor(tmp_path)[1]
  assert 'note   there is an NVIDIA driver, but TensorFlow sees no ' in report
  assert "pip install 'tensorflow[and-cuda]==2.20.0'\n" in report


@pytest.mark.slow  # a process of its own
def test_an_empty_installation(tmp_path):
  done = as_command(
    tmp_path,
    MAIN,
    'doctor',
    interpreter=['-S'],  # no site-packages
  )
  assert done.returncode == 1
  assert 'FAULT  not installed: tensorflow, tensorflow-estimator' in done.stdout
  assert 'FAULT  import fails: ModuleNotFoundError' in done.stdout
  assert 'pip install -c constraints.txt .' in done.stdout
  assert 'Traceback' not in done.stderr


def test_rows_are_compared_with_the_released(tmp_path):
  cb = b'{"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 0}\n'
  write(tmp_path / 'superglue/CB/train.jsonl', cb * 250)
  write(tmp_path / 'superglue/CB/val.jsonl', cb * 50)
  write(tmp_path / 'glue/QQP/train.tsv', QQP + ROW + b'2\t3\t4\tA\t\t1\n')
  status, report = doctor(tmp_path)
  assert status == 0
  train, validation = cells(report, 'synth_super_glue_cb')
  assert train[1:6] == ['train', '250', 'as', 'released', '0']
  assert len(train[6]) == 16
  assert train[7:] == ['superglue/CB/train.jsonl']
  assert validation[2:6] == ['50', '6', 'missing', '0']
  assert "train.tsv:3: an empty 'question2'; kept" in report
  assert 'odd    ' in report
  assert 'synth_glue_qqp_v002 validation' in report.partition('missing: ')[2]
  assert report.count('released') == 2  # one line of headers
  assert report.endswith('No faults.\n')


def test_faults_are_listed(tmp_path):
  rows = QQP + ROW + ROW.replace(b'0\n', b'7\n') * 25
  path = write(tmp_path / 'glue/QQP/train.tsv', rows)
  broken = write(tmp_path / 'glue/RTE/train.tsv', b'sentence\tlabel\n')
  (tmp_path / 'corpus').mkdir()
  os.mkfifo(tmp_path / 'corpus/a.txt')
  status, report = doctor(tmp_path)
  assert status == 1
  (qqp,) = cells(report, 'synth_glue_qqp')
  assert qqp[2:6] == ['1', '363,848', 'missing', '25']
  assert f"{path}:3: the label '7'" in report
  assert f"{path}:22: the label '7'" in report
  assert f'{path}:23' not in report
  assert f'{path}: 25 faults; without the bad rows, 1 examples' in report
  assert f'{broken}:1: a first line' in report
  assert f'{tmp_path}/corpus/a.txt is a pipe' in report
  assert 'FAULT  the malformed rows above\n       -> Fix the file' in report
  assert report.endswith('\n1 fault.\n')


def test_many_files_are_one_line(tmp_path):
  for i in range(9):
    write(tmp_path / f'corpus/{i}.txt', b'A text, number %d.\n' % i)
  status, report = doctor(tmp_path)
  assert status == 0
  train, validation = cells(report, 'synth_text_span_corruption')
  names = [f'corpus/{i}.txt' for i in range(4)]
  assert train[-7:] == [*names, 'and', '5', 'more']
  assert int(train[2]) + int(validation[2]) == 9
  write(tmp_path / 'corpus/8.txt', b'A text, number 9.\n')
  again = cells(doctor(tmp_path)[1], 'synth_text_span_corruption')
  assert len(again[0][4]) == len(train[4]) == 16
  assert again[0][4] != train[4]
