"""`synth-mtf doctor` on healthy and on broken machines."""

import sys

import pytest
import tensorflow as tf

from synth_mtf import cli
from tests.run.process_test import as_command


@pytest.fixture
def doctor(capsys, monkeypatch):
  """Runs the command; returns its status and its lines."""
  for name in ('DATA_DIR', 'VOCABULARY'):
    monkeypatch.delenv(f'SYNTH_MTF_{name}', raising=False)
    monkeypatch.setenv(f'SYNTH_MTF_{name}', '')  # put back afterwards

  def run(*words):
    status = cli.main(['doctor', *words])
    return status, capsys.readouterr().out

  return run


def test_a_healthy_machine(doctor, some_data):
  status, report = doctor('--vocabulary=bytes', f'--data_dir={some_data}')
  assert status == 0
  assert 'FAULT' not in report
  assert report.endswith('No faults.\n')
  assert f'ok     Python {sys.version_info.major}.' in report
  assert f'ok     tensorflow {tf.__version__}, tensorflow-text ' in report
  assert 'mesh-tensorflow 0.1.21' in report
  assert 'TensorFlow sees: 1 CPU' in report
  assert 'ok     vocabulary bytes: ' in report
  assert f'ok     data folder {some_data}: files of ' in report


def test_a_wrong_data_folder_and_vocabulary(doctor, tmp_path):
  status, report = doctor(
    '--data_dir=/nowhere', f'--vocabulary={tmp_path / "none.model"}'
  )
  assert status == 1
  assert "FAULT  vocabulary '" in report
  assert 'FAULT  data folder /nowhere: files of 0 tasks\n       -> ' in report
  assert report.endswith('2 faults.\n')


def test_without_a_network_and_settings_is_a_note(doctor, monkeypatch):
  monkeypatch.setenv('https_proxy', 'http://localhost:1')
  status, report = doctor()
  assert status == 0
  assert "note   T5's vocabulary gs://" in report
  assert '--vocabulary=bytes' in report
  assert 'note   no data folder is set' in report


@pytest.mark.slow  # a process of its own
def test_an_empty_installation(tmp_path):
  done = as_command(
    tmp_path,
    'import sys\nfrom synth_mtf.cli import main\nsys.exit(main())\n',
    'doctor',
    interpreter=['-S'],  # no site-packages
  )
  assert done.returncode == 1
  assert 'FAULT  not installed: tensorflow, tensorflow-text' in done.stdout
  assert 'FAULT  import fails: ModuleNotFoundError' in done.stdout
  assert 'pip install -c constraints.txt .' in done.stdout
  assert 'Traceback' not in done.stderr
