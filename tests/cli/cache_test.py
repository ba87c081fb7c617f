"""`synth-mtf cache` as a process that is killed and started again."""

import json
import subprocess
import sys
import time

import pytest

from tests.cli import command

pytestmark = pytest.mark.slow  # starts processes

QNLI = 'synth_glue_qnli_v002'
PATIENCE = 1500
# Waits to be killed before the third file, however late that comes.
_TWO_FILES = """
import sys, time
from synth_mtf import cli
from synth_mtf.tasks import cache_files
write = cache_files.write
def write_two(path, *more):
  if path.endswith('train.tfrecord-00002-of-00005'):
    time.sleep(6000)
  return write(path, *more)
cache_files.write = write_two
sys.exit(cli.main())
"""


def test_a_killed_command_goes_on(made_data, tmp_path):
  out = tmp_path / 'cache'
  words = [
    *('cache', f'--task={QNLI}', f'--out={out}', '--vocabulary=bytes'),
    f'--data_dir={made_data}',
  ]
  process = subprocess.Popen(
    [sys.executable, '-c', _TWO_FILES, *words],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  end = time.monotonic() + PATIENCE
  while len(list(out.glob('*/train.tfrecord-*'))) < 2:
    assert process.poll() is None
    assert time.monotonic() < end
    time.sleep(0.01)
  process.kill()
  process.wait()
  record = out / QNLI / 'synth_mtf.json'
  shards = json.loads(record.read_text())['splits']['train']['shards']
  assert 0 < len(shards) < 5
  files = [out / QNLI / f'train.tfrecord-0000{n}-of-00005' for n in shards]
  before = {path: path.stat().st_mtime_ns for path in files}
  status, report, err = command.run(*words)
  assert status == 0, err
  assert before == {path: path.stat().st_mtime_ns for path in files}
  straight = tmp_path / 'straight'
  _, expected, _ = command.run(*words, f'--out={straight}')
  assert report.replace(str(out), str(straight)) == expected
  for path in (straight / QNLI).glob('*.tfrecord-*'):
    assert (out / QNLI / path.name).read_bytes() == path.read_bytes()
  assert not list((out / QNLI).glob('.*'))
