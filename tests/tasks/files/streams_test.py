"""Files as streams of bytes."""

import gzip
import pathlib

import pytest

from synth_mtf.errors import UserError
from synth_mtf.tasks.files import streams
from tests.tasks.files import folder


def test_patterns_find_files_in_any_folder(tmp_path):
  for name in ('a.txt', 'b/c.txt', 'b/[d]/e.txt', 'b/f.md'):
    folder.write(tmp_path / 'x' / name, b'')
  found = streams.find(str(tmp_path), 'x/**/*.txt')
  names = [pathlib.Path(p).relative_to(tmp_path).as_posix() for p in found]
  assert names == ['x/a.txt', 'x/b/[d]/e.txt', 'x/b/c.txt']
  assert streams.find(str(tmp_path), 'x/*.txt') == [str(tmp_path / 'x/a.txt')]
  assert not streams.find(str(tmp_path), 'absent/**/*.txt')


@pytest.mark.parametrize('name', ['a.txt', 'a.txt.gz'])
def test_lines_and_their_offsets(tmp_path, monkeypatch, name):
  monkeypatch.setattr(streams, '_FIRST_BYTES', 3)
  lines = [b'one\n', b'\n', b'a much longer line\n', b'without an end']
  data = b''.join(lines)
  packed = gzip.compress(data) if name.endswith('.gz') else data
  path = str(folder.write(tmp_path / name, packed))
  with streams.ByteStream(path) as stream:
    for i, line in enumerate(lines):
      assert stream.offset == len(b''.join(lines[:i]))
      assert stream.readline() == line
    assert stream.readline() == b''
  with streams.ByteStream(path, offset=5) as stream:
    assert stream.readline() == lines[2]
  for i in range(len(lines)):
    offset = len(b''.join(lines[:i]))
    assert streams.line_number(path, offset) == 1 + i


def test_two_files_in_step(tmp_path):
  english, german = (
    str(folder.write(tmp_path / name, data))
    for name, data in (('a.en', b'one\ntwo\n'), ('a.de', b'eins\n'))
  )
  with streams.ParallelStream(english, german) as stream:
    assert stream.readlines() == (b'one\n', b'eins\n')
    assert stream.offset == [4, 5]
    assert stream.readlines() == (b'two\n', b'')


def test_small_files_one_after_the_other(tmp_path):
  for name in ('a', 'b'):
    folder.write(tmp_path / name, name.encode())
  with streams.FolderStream(str(tmp_path), ['a', 'b'], offset=1) as stream:
    record = stream.readfile()
    assert record is not None
    assert (record.data, record.offset) == (b'b', 1)
    assert record.name == str(tmp_path / 'b')
    assert stream.readfile() is None


def test_what_cannot_be_read_is_named(tmp_path):
  with pytest.raises(UserError, match='absent.txt cannot be read'):
    streams.ByteStream(str(tmp_path / 'absent.txt'))


def test_sizes_are_summed(tmp_path):
  paths = [folder.write(tmp_path / name, b'xyz') for name in 'ab']
  assert streams.total_bytes(map(str, paths)) == 6
