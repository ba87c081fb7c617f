"""One training run in a folder at a time."""

import fcntl
import os

import pytest

from synth_mtf.errors import UserError
from synth_mtf.run import lock


@pytest.fixture(autouse=True)
def _released():
  yield
  lock.release_all()


def locked(folder):
  """Whether somebody holds the lock; one of this process's files may ask."""
  with open(folder / lock.FILE) as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
  return False


def test_it_is_held_until_it_is_given_back(tmp_path):
  lock.take(str(tmp_path))
  lock.take(f'{tmp_path}/.')  # the same run in the same folder
  assert locked(tmp_path)
  assert f'process {os.getpid()} on ' in (tmp_path / lock.FILE).read_text()
  lock.release_all()
  assert not locked(tmp_path)
  lock.take(str(tmp_path))
  assert locked(tmp_path)


def test_a_second_run_is_refused_and_told_of_the_first(tmp_path):
  with open(tmp_path / lock.FILE, 'w') as other:
    fcntl.flock(other, fcntl.LOCK_EX)
    print('process 7 on some machine', file=other, flush=True)
    with pytest.raises(
      UserError, match=r'another run is training in .* \(process 7 on some'
    ):
      lock.take(str(tmp_path))
  lock.take(str(tmp_path))


def test_what_a_dead_process_wrote_is_replaced(tmp_path):
  (tmp_path / lock.FILE).write_text('process 123456789 on a machine' * 9)
  lock.take(str(tmp_path))
  (line,) = (tmp_path / lock.FILE).read_text().splitlines()
  assert line.startswith(f'process {os.getpid()} on ')


def test_a_bucket_has_none():
  lock.take('gs://nobody/run')
