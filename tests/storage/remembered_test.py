"""What commands remember, and when they forget it."""

import os
import time

import pytest

from synth_mtf.storage import remembered


def test_an_answer_belongs_to_its_question():
  assert remembered.get(['a', 1]) is None
  remembered.put(['a', 1], {'b': [2.5, 'ü']})
  assert remembered.get(['a', 1]) == {'b': [2.5, 'ü']}
  assert remembered.get(['a', 2]) is None


@pytest.mark.parametrize('changed', ['_version', 'folder'])
def test_another_version_or_user_does_not_know_it(
  changed, monkeypatch, tmp_path
):
  remembered.put('a', 'b')
  value = 'other' if changed == '_version' else tmp_path
  monkeypatch.setattr(remembered, changed, lambda: value)
  assert remembered.get('a') is None


def test_a_damaged_answer_is_none():
  remembered.put('a', 'b')
  (path,) = remembered.folder().rglob('*.json')
  path.write_text('{')
  assert remembered.get('a') is None


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
  (tmp_path / 'file').touch()
  monkeypatch.setattr(remembered, 'folder', lambda: tmp_path / 'file')
  remembered.put('a', 'b')
  assert remembered.get('a') is None


def test_answers_of_old_versions_are_removed(monkeypatch):
  folder = remembered.folder()
  for age, name in ((40, 'old'), (20, 'new')):
    (folder / name).mkdir()
    then = time.time() - age * 24 * 3600
    os.utime(folder / name, (then, then))
  remembered.put('a', 'b')
  assert {path.name for path in folder.iterdir()} > {'new'}
  assert not (folder / 'old').exists()
