"""Whether files are still what they were."""

import os
import shutil

import pytest

from synth_mtf.errors import UserError
from synth_mtf.tasks.files import fingerprints


def _write(path, data):
  path.write_bytes(data)
  return str(path)


def test_a_small_file_is_told_by_its_bytes_alone(tmp_path):
  path = _write(tmp_path / 'a', b'some text')
  before = fingerprints.of([path])
  assert before[:2] == [1, 9]  # files and bytes
  os.utime(path, (1, 1))
  assert fingerprints.of([path]) == before
  assert fingerprints.of([shutil.copy(path, f'{path}.copy')]) == before
  assert fingerprints.of([_write(tmp_path / 'c', b'some test')]) != before


def test_files_keep_their_names_and_order(tmp_path):
  paths = [_write(tmp_path / name, b'text') for name in 'ab']
  before = fingerprints.of(paths)
  assert fingerprints.of(paths[::-1]) != before
  renamed = [paths[0], shutil.move(paths[1], tmp_path / 'c')]
  assert fingerprints.of([str(path) for path in renamed]) != before


def test_a_file_that_is_gone_is_named(tmp_path):
  with pytest.raises(UserError, match='the data file .*/a cannot be read'):
    fingerprints.of([str(tmp_path / 'a')])


@pytest.mark.parametrize('place', [0, 1 << 19, (1 << 20) - 1])
def test_a_large_file_is_told_by_blocks_and_its_times(
  place, tmp_path, monkeypatch
):
  monkeypatch.setattr(fingerprints, '_WHOLE_BYTES', 1 << 19)
  path = _write(tmp_path / 'a', bytes(1 << 20))
  before = fingerprints.of([path])
  stat = os.stat(path)
  with open(path, 'r+b') as stream:
    stream.seek(place)
    stream.write(b'x')
  os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
  after = fingerprints.of([path])
  assert after != before
  assert after[:3] == before[:3]  # of one file, its size and the time it has


def test_one_altered_file_of_many_is_seen(tmp_path):
  paths = [_write(tmp_path / str(i), b'text') for i in range(200)]
  before = fingerprints.of(paths)
  assert fingerprints.of(paths) == before
  stat = os.stat(paths[101])
  with open(paths[101], 'wb') as stream:
    stream.write(b'TEXT')
  os.utime(paths[101], ns=(stat.st_atime_ns, stat.st_mtime_ns))
  assert fingerprints.of(paths) != before
