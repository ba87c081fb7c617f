"""Files that are written whole or not at all."""

import os
import subprocess
import sys

import pytest

from synth_mtf.errors import UserError
from synth_mtf.storage import atomic


def test_a_text_replaces_the_file(tmp_path):
  path = tmp_path / 'a.json'
  for text in ('first, and longer', 'café'):
    atomic.write(path, text)
    assert path.read_bytes() == text.encode('utf-8')
  atomic.write(str(path), 'by its name')
  assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_replaced_only_when_it_is_complete(tmp_path):
  path = tmp_path / 'a.model'
  path.write_text('before')
  with pytest.raises(ZeroDivisionError), atomic.replacing(path) as partial:
    partial.write_text('half')
    1 / 0  # noqa: B018
  assert list(tmp_path.iterdir()) == [path]
  with atomic.replacing(path) as partial:
    partial.write_text('whole')
    assert path.read_text() == 'before'
    assert partial.parent.parent == tmp_path  # on the same drive
    assert str(os.getpid()) in partial.parent.name  # unlike another process's
  assert path.read_text() == 'whole'


def test_nothing_written_is_an_error(tmp_path):
  with pytest.raises(FileNotFoundError), atomic.replacing(tmp_path / 'a'):
    pass
  assert not list(tmp_path.iterdir())


def test_a_bucket_is_written_through_tensorflow(tmp_path):
  """`file://` stands for any scheme of its file systems."""
  atomic.write(f'file://{tmp_path}/a', 'café')
  assert (tmp_path / 'a').read_text(encoding='utf-8') == 'café'


def test_an_error_names_the_file(tmp_path):
  with (
    pytest.raises(OSError, match=r"No space left on device: '.*/a.json'$"),
    atomic.writing(tmp_path / 'a.json'),
    open('/dev/full', 'w') as full,
  ):
    full.write('text')
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'error', [OSError('no number'), OSError(28, 'full', 'its own name')]
)
def test_an_error_that_needs_no_name_is_raised_as_it_is(error):
  def fail():
    raise error

  with pytest.raises(OSError) as raised, atomic.errors_named('a.json'):
    fail()
  assert raised.value is error


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('there', 'there exists already'),
    ('s4://a/b', 'b exists already, or is a bucket'),
    ('file/new', 'the new folder: .*/new cannot be written: .*is not a folder'),
    ('', 'the new folder: the name is empty'),
    ('~/new', 'the shell replaces ~ only at the start'),
  ],
)
def test_no_new_folder(tmp_path, monkeypatch, name, message):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'there').mkdir()
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match=message), atomic.new_folder(name):
    pass


def writer_of(path):
  """Starts a process that is writing a path."""
  process = subprocess.Popen(
    [sys.executable, '-c', _WRITER, path], stdout=subprocess.PIPE
  )
  assert process.stdout is not None
  assert process.stdout.readline() == b'writing\n'
  return process


_WRITER = """
import sys, time
from synth_mtf.storage import atomic
with atomic.writing(sys.argv[1]) as stream:
  stream.write('a large model')
  stream.flush()
  print('writing', flush=True)
  time.sleep(600)
"""


def test_what_a_killed_process_leaves_is_removed(tmp_path):
  path = tmp_path / 'a [1].npz'
  process = writer_of(path)
  try:
    atomic.write(path, 'at the same time')
    (left,) = tmp_path.glob('.*')  # of a running process, which goes on
    assert (left / path.name).read_text() == 'a large model'
  finally:
    process.kill()
    process.wait()
  atomic.write(tmp_path / 'b', 'another name')
  assert left.exists()
  atomic.write(path, 'later')
  assert sorted(tmp_path.iterdir()) == [path, tmp_path / 'b']


def test_a_link_in_its_place_is_not_followed(tmp_path):
  other = tmp_path / 'other'
  other.mkdir()
  (other / 'file').touch()
  (tmp_path / '.a.1.partial').symlink_to(other)
  atomic.write(tmp_path / 'a', 'text')
  assert (other / 'file').exists()


def test_files_of_a_new_folder_can_be_read_by_others(tmp_path):
  """safetensors writes its own with mode 0600."""
  before = os.umask(0o022)
  try:
    with atomic.new_folder(str(tmp_path / 'model')) as folder:
      os.close(os.open(folder / 'weights', os.O_CREAT | os.O_WRONLY, 0o600))
      (folder / 'config').touch()
  finally:
    os.umask(before)
  for name in ('weights', 'config'):
    assert (tmp_path / 'model' / name).stat().st_mode & 0o777 == 0o644
  assert list(tmp_path.iterdir()) == [tmp_path / 'model']


def test_only_a_file_of_the_command_is_replaced(tmp_path):
  ours, other = tmp_path / 'ours', tmp_path / 'other'
  ours.write_text('made by a mark')
  other.write_text('precious')
  atomic.check_replaceable(str(tmp_path / 'new'), 'a mark')
  atomic.check_replaceable(str(ours), 'a mark')
  with pytest.raises(UserError, match='other exists and is not a file of'):
    atomic.check_replaceable(str(other), 'a mark')
  assert other.read_text() == 'precious'


@pytest.mark.parametrize('name', ['.', 'missing/new'])
def test_a_folder_or_a_file_in_none_is_no_place_for_a_file(tmp_path, name):
  with pytest.raises(UserError, match='expected a file that can be read, in'):
    atomic.check_replaceable(str(tmp_path / name), 'a mark')
