"""Folders that will not do as --model_dir."""

import fcntl
import os

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.errors import UserError
from synth_mtf.run import model_dir


@pytest.fixture
def somebody_elses(tmp_path):
  """A folder that this process may not write to."""
  mine = os.geteuid()
  tmp_path.chmod(0o555)
  if not mine:
    os.seteuid(65534)  # root may write anywhere
  yield str(tmp_path)
  os.seteuid(mine)
  tmp_path.chmod(0o755)


@pytest.mark.parametrize('name', ['run', 'a/run-1', '/a/run.2', 'gs://b/run'])
def test_good_names(name):
  model_dir.check_name(name)


@pytest.mark.parametrize('name', ['run[v1]', 'run*1', 'run?', 'run\\1'])
def test_a_pattern(name):
  with pytest.raises(UserError, match='contains .* takes the name for a'):
    model_dir.check_name(name)


@pytest.mark.parametrize(
  ('name', 'message'),
  [('', 'is empty'), (' ', 'white space'), ('run ', 'white space')],
)
def test_no_name(name, message):
  with pytest.raises(UserError, match=message):
    model_dir.check_name(name)


def test_the_home_folder():
  with pytest.raises(UserError, match=f'Write {os.path.expanduser("~")}/x'):
    model_dir.check_name('~/x')


def test_it_is_made(tmp_path):
  folder = tmp_path / 'a' / 'run'
  for _ in range(2):
    model_dir.check_folder(str(folder))
  assert model_dir.is_writable(str(folder))
  assert not list(folder.iterdir())


def test_a_dangling_link(tmp_path):
  (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
  for folder in (tmp_path / 'link', tmp_path / 'link' / 'below'):
    with pytest.raises(
      UserError, match='the link .*link leads to .*nowhere, which'
    ):
      model_dir.check_folder(str(folder))


def test_a_link_to_a_folder(tmp_path):
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'link').symlink_to(tmp_path / 'folder')
  model_dir.check_folder(str(tmp_path / 'link'))


def test_a_file(tmp_path):
  (tmp_path / 'file').touch()
  for folder in (tmp_path / 'file', tmp_path / 'file' / 'below'):
    with pytest.raises(UserError, match='file is a file. Give a folder'):
      model_dir.check_folder(str(folder))


def test_one_that_cannot_be_made(somebody_elses):
  with pytest.raises(UserError, match='run cannot be made: .*may write to'):
    model_dir.check_folder(f'{somebody_elses}/run')


def test_one_that_cannot_be_written(somebody_elses):
  assert not model_dir.is_writable(somebody_elses)
  with pytest.raises(UserError, match='Permission denied. Give a folder'):
    model_dir.check_writable(somebody_elses)


def test_it_explains_why_nothing_could_be_written(tmp_path, somebody_elses):
  explain = model_dir.explainer(somebody_elses)
  for error in (OSError(), tf.errors.PermissionDeniedError(None, None, '')):
    assert 'cannot be written to' in str(explain(error))
  assert explain(ValueError()) is None


def test_it_explains_nothing_else(tmp_path):
  assert model_dir.explainer(str(tmp_path))(OSError()) is None


def test_a_bucket_is_left_to_tensorflow():
  model_dir.check_writable('gs://nobody/run')


@pytest.fixture(autouse=True)
def _released():
  yield
  model_dir.unlock_all()


def locked(folder):
  """Whether somebody holds the lock; one of this process's files may ask."""
  with open(folder / model_dir.LOCK) as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
  return False


def test_the_lock_is_held_until_it_is_released(tmp_path):
  model_dir.lock(str(tmp_path))
  model_dir.lock(f'{tmp_path}/.')  # the same run in the same folder
  assert locked(tmp_path)
  assert f'process {os.getpid()} on ' in (tmp_path / model_dir.LOCK).read_text()
  model_dir.unlock_all()
  assert not locked(tmp_path)
  model_dir.lock(str(tmp_path))
  assert locked(tmp_path)


def test_a_second_run_is_refused(tmp_path):
  with open(tmp_path / model_dir.LOCK, 'w') as other:
    fcntl.flock(other, fcntl.LOCK_EX)
    print('process 7 on some machine', file=other, flush=True)
    with pytest.raises(
      UserError, match=r'another run is training in .* \(process 7 on some'
    ):
      model_dir.lock(str(tmp_path))
  model_dir.lock(str(tmp_path))


def test_what_a_dead_process_wrote_is_replaced(tmp_path):
  (tmp_path / model_dir.LOCK).write_text('process 123456789 on a machine' * 9)
  model_dir.lock(str(tmp_path))
  (line,) = (tmp_path / model_dir.LOCK).read_text().splitlines()
  assert line.startswith(f'process {os.getpid()} on ')


def test_a_bucket_has_no_lock():
  model_dir.lock('gs://nobody/run')
