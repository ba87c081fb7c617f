"""The user's environment variables do not affect the tests."""

import os
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT

EXPORTED = {
  'SYNTH_MTF_DATA_DIR': '/nowhere',
  'SYNTH_MTF_VOCABULARY': '/nowhere/of.model',
  'SYNTH_MTF_SKIP_BAD_ROWS': 'neither yes nor no',
  'SYNTH_MTF_NEW_SETTING': 'x',
}
INSIDE = """
import os, subprocess, sys
import pytest
from synth_mtf import tasks

@pytest.fixture(scope='session')
def shared():
  return dict(os.environ)

def names(environment):
  return [n for n in environment if n.startswith('SYNTH_MTF_')]

def test_leaves_something_behind(shared):
  assert names(shared) == names(os.environ) == ['SYNTH_MTF_TEST_DATA']
  assert tasks.settings() == tasks.Settings()
  os.environ['SYNTH_MTF_DATA_DIR'] = '/left/behind'

def test_finds_nothing():
  assert names(os.environ) == ['SYNTH_MTF_TEST_DATA']
  code = 'import os; print([n for n in os.environ if "SYNTH_MTF_D" in n])'
  assert subprocess.check_output([sys.executable, '-c', code]) == b'[]\\n'
"""


@pytest.mark.slow  # a process of its own
def test_settings_reach_no_test(tmp_path):
  """No test, session fixture or process sees them."""
  file = tmp_path / 'inside_test.py'
  file.write_text(INSIDE)
  done = subprocess.run(
    [sys.executable, '-m', 'pytest', '-q', '-p', 'tests.conftest', file],
    env={
      **os.environ,
      **EXPORTED,
      'SYNTH_MTF_TEST_DATA': '/where/the/tests/look',
      'PYTHONPATH': str(CHECKOUT),
    },
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stdout[-3000:]
  assert '2 passed' in done.stdout
