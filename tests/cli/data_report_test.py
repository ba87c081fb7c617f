"""`synth-mtf doctor --data_dir` reads every row of every file."""

import os
import pathlib

import pytest

from synth_mtf import cli

_QQP = b'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
_ROW = b'1\t2\t3\tWhy?\tHow?\t0\n'


@pytest.fixture
def doctor(capsys, monkeypatch, tmp_path):
  """Runs the command; returns its status and what it printed."""
  for name in ('DATA_DIR', 'VOCABULARY'):
    monkeypatch.delenv(f'SYNTH_MTF_{name}', raising=False)
    monkeypatch.setenv(f'SYNTH_MTF_{name}', '')  # put back afterwards
  monkeypatch.setenv('SYNTH_MTF_INDEX_DIR', str(tmp_path / 'index'))

  def run(folder):
    words = ['doctor', '--vocabulary=bytes', f'--data_dir={folder}']
    return cli.main(words), capsys.readouterr().out

  return run


def _write(path: pathlib.Path, data: bytes) -> pathlib.Path:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(data)
  return path


def _cells(report, name):
  return [line.split() for line in report.splitlines() if line.startswith(name)]


def test_rows_are_compared_with_the_released(doctor, tmp_path):
  cb = b'{"premise": "a", "hypothesis": "b", "label": "neutral", "idx": %d}\n'
  train = b''.join(cb % i for i in range(250))
  _write(tmp_path / 'superglue/CB/train.jsonl', train)
  _write(
    tmp_path / 'superglue/CB/val.jsonl', b''.join(cb % i for i in range(50))
  )
  _write(tmp_path / 'glue/QQP/train.tsv', _QQP + _ROW + b'2\t3\t4\tA\t\t1\n')
  status, report = doctor(tmp_path)
  assert status == 0
  train, validation = _cells(report, 'synth_super_glue_cb')
  assert train[1:7] == [
    'train',
    'superglue/CB/train.jsonl',
    '250',
    'as',
    'released',
    '0',
  ]
  assert len(train[7]) == 16
  assert validation[-3:-1] == ['missing', '0']
  assert 'odd    ' in report
  assert "train.tsv:3: an empty 'question2'; kept" in report
  assert report.endswith('No faults.\n')


def test_faults_are_listed(doctor, tmp_path):
  path = _write(
    tmp_path / 'glue/QQP/train.tsv',
    _QQP + _ROW + _ROW.replace(b'0\n', b'7\n') * 25,
  )
  broken = _write(tmp_path / 'glue/RTE/train.tsv', b'sentence\tlabel\n')
  status, report = doctor(tmp_path)
  assert status == 1
  (qqp,) = _cells(report, 'synth_glue_qqp')
  assert qqp[3:] == ['1', '363,848', 'missing', '25', qqp[-1]]
  assert f"FAULT  malformed: {path}\n       {path}:3: the label '7'" in report
  assert f"{path}:22: the label '7'" in report
  assert '... and 5 more' in report
  assert (
    f'FAULT  malformed: {broken}\n       {broken}:1: a first line' in report
  )
  assert report.endswith('2 faults.\n')


def test_many_files_are_one_line(doctor, tmp_path):
  for i in range(9):
    _write(tmp_path / f'corpus/{i}.txt', b'A text, number %d.\n' % i)
  status, report = doctor(tmp_path)
  train, validation = _cells(report, 'synth_text_span_corruption')
  assert train[2:6] == ['corpus/0.txt', 'and', '8', 'more']
  assert int(train[6]) + int(validation[6]) == 9
  (tmp_path / 'corpus/8.txt').write_bytes(b'A text, number 9.\n')
  _, again = doctor(tmp_path)
  assert _cells(again, 'synth_text_span_corruption')[0][-1] != train[-1]
  assert status == 0


def test_a_pipe_is_a_fault(doctor, tmp_path):
  (tmp_path / 'corpus').mkdir()
  os.mkfifo(tmp_path / 'corpus/a.txt')
  status, report = doctor(tmp_path)
  assert status == 1
  assert f'{tmp_path}/corpus/a.txt is a pipe' in report
