"""Records beside checkpoints: written once, for those that are there."""

import pytest

from synth_mtf.checkpoints import records
from synth_mtf.errors import UserError


def read(folder):
  return records.read(str(folder), 'a.json', 'the model')


def test_what_is_written_is_read(tmp_path):
  assert read(tmp_path) == {}
  records.write(str(tmp_path), 'a.json', {'a': [1, None]})
  assert read(tmp_path) == {'a': [1, None]}


def test_what_speaks_of_checkpoints_that_are_there_stays(tmp_path):
  records.write(str(tmp_path), 'a.json', 1)
  records.write(str(tmp_path), 'a.json', 2)
  assert read(tmp_path) == 2, 'of a run that came to nothing'
  (tmp_path / 'model.ckpt-0.index').touch()
  records.write(str(tmp_path), 'a.json', 3)
  assert read(tmp_path) == 2


def test_checkpoints_without_one_get_one(tmp_path):
  (tmp_path / 'model.ckpt-0.index').touch()
  records.write(str(tmp_path), 'a.json', 1)
  assert read(tmp_path) == 1


@pytest.mark.parametrize('content', [b'', b'{"a"', b'\xff\xfe'])
def test_a_damaged_one_is_named(tmp_path, content):
  (tmp_path / 'a.json').write_bytes(content)
  with pytest.raises(
    UserError, match='a.json is damaged .*remove it if .* the model is'
  ):
    read(tmp_path)
