"""The log, and what reaches the person."""

import os
import subprocess
import sys

import pytest

from synth_mtf.run import output
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.slow  # starts processes

PROGRAM = """
import os, subprocess, sys
sys.argv[0] = 'synth-mtf'
from synth_mtf.run import output
with output.to_log(sys.argv[1]):
  print('said by Python')
  print('to stderr by Python', file=sys.stderr)
  os.write(2, b'said by C++\\n')
  subprocess.run(['echo', 'said by a child'], check=True)
  output.console().line('for the person')
print('again')
"""


def test_all_goes_to_the_log_but_what_is_for_the_person(tmp_path):
  log = tmp_path / 'log'
  done = subprocess.run(
    [sys.executable, '-Wignore', '-c', PROGRAM, log],
    cwd=CHECKOUT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert sorted(log.read_text().splitlines()) == [
    'said by C++',
    'said by Python',
    'said by a child',
    'to stderr by Python',
  ]
  assert done.stdout == 'again\n'
  assert done.stderr == 'for the person\n'


def test_an_error_leaves_the_streams_as_they_were(tmp_path, capfd):
  with pytest.raises(ValueError), output.to_log(str(tmp_path / 'log')):
    int('no number')
  os.write(2, b'seen\n')
  assert capfd.readouterr().err == 'seen\n'


def test_what_was_said_before_there_was_a_log_begins_it(tmp_path, capfd):
  with output.kept():
    os.write(1, b'early\n')
  log = tmp_path / 'log'
  log.write_text('of another run\n')
  with output.to_log(str(log)):
    os.write(1, b'late\n')
  assert log.read_text() == 'of another run\nearly\nlate\n'
  assert capfd.readouterr().out == ''


def test_a_bucket_has_its_log_on_this_machine(tmp_path):
  assert output.log_of(str(tmp_path)) == f'{tmp_path}/log'
  assert '://' not in output.log_of('gs://bucket/run')
