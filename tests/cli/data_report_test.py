"""`synth-mtf doctor --data_dir` reads every row of every file."""

import os

import pytest

from synth_mtf import cli
from tests.tasks.folder import write

_QQP = b'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
_ROW = b'1\t2\t3\tWhy?\tHow?\t0\n'


@pytest.fixture
def doctor(capsys, monkeypatch, tmp_path):
  """Runs the command; returns its status and what it printed."""
  for name in ('DATA_DIR', 'VOCABULARY'):
    monkeypatch.setenv(f'SYNTH_MTF_{name}', '')  # put back afterwards
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path / 'index'))
  words = ['doctor', '--vocabulary=bytes', f'--data_dir={tmp_path}']
  return lambda: (cli.main(words), capsys.readouterr().out)


def _cells(report, name):
  return [line.split() for line in report.splitlines() if line.startswith(name)]


def test_rows_are_compared_with_the_released(doctor, tmp_path):
  cb = b'{"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 0}\n'
  write(tmp_path / 'superglue/CB/train.jsonl', cb * 250)
  write(tmp_path / 'superglue/CB/val.jsonl', cb * 50)
  write(tmp_path / 'glue/QQP/train.tsv', _QQP + _ROW + b'2\t3\t4\tA\t\t1\n')
  status, report = doctor()
  assert status == 0
  train, validation = _cells(report, 'synth_super_glue_cb')
  assert train[1:6] == ['train', '250', 'as', 'released', '0']
  assert len(train[6]) == 16
  assert train[7:] == ['superglue/CB/train.jsonl']
  assert validation[2:6] == ['50', '6', 'missing', '0']
  assert "train.tsv:3: an empty 'question2'; kept" in report
  assert 'odd    ' in report
  assert 'synth_glue_qqp_v002 validation' in report.partition('missing: ')[2]
  assert report.endswith('No faults.\n')


def test_faults_are_listed(doctor, tmp_path):
  rows = _QQP + _ROW + _ROW.replace(b'0\n', b'7\n') * 25
  path = write(tmp_path / 'glue/QQP/train.tsv', rows)
  broken = write(tmp_path / 'glue/RTE/train.tsv', b'sentence\tlabel\n')
  (tmp_path / 'corpus').mkdir()
  os.mkfifo(tmp_path / 'corpus/a.txt')
  status, report = doctor()
  assert status == 1
  (qqp,) = _cells(report, 'synth_glue_qqp')
  assert qqp[2:6] == ['1', '363,848', 'missing', '25']
  assert f"FAULT  malformed:\n       {path}:3: the label '7'" in report
  assert f"{path}:22: the label '7'" in report
  assert f'{path}:23' not in report
  assert f'{path}: 25 faults; without the bad rows, 1 examples' in report
  assert f'FAULT  malformed:\n       {broken}:1: a first line' in report
  assert f'{tmp_path}/corpus/a.txt is a pipe' in report
  assert report.endswith('3 faults.\n')


def test_many_files_are_one_line(doctor, tmp_path):
  for i in range(9):
    write(tmp_path / f'corpus/{i}.txt', b'A text, number %d.\n' % i)
  status, report = doctor()
  assert status == 0
  train, validation = _cells(report, 'synth_text_span_corruption')
  names = [f'corpus/{i}.txt' for i in range(4)]
  assert train[-7:] == [*names, 'and', '5', 'more']
  assert int(train[2]) + int(validation[2]) == 9
  (tmp_path / 'corpus/8.txt').write_bytes(b'A text, number 9.\n')
  _, again = doctor()
  digest = _cells(again, 'synth_text_span_corruption')[0][4]
  assert len(digest) == len(train[4]) == 16
  assert digest != train[4]
