"""Files that are written whole or not at all."""

import os

import pytest

from synth_mtf import atomic


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
    assert partial.parent == tmp_path
    assert str(os.getpid()) in partial.name  # unlike another process's
  assert path.read_text() == 'whole'


def test_nothing_written_is_an_error(tmp_path):
  with pytest.raises(FileNotFoundError), atomic.replacing(tmp_path / 'a'):
    pass
  assert not list(tmp_path.iterdir())


def test_a_bucket_is_written_through_tensorflow(tmp_path):
  """`file://` stands for any scheme of its file systems."""
  atomic.write(f'file://{tmp_path}/a', 'café')
  assert (tmp_path / 'a').read_text(encoding='utf-8') == 'café'
