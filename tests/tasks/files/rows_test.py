"""What is wrong with a row, in one sentence."""

import pytest

from synth_mtf.tasks.files import rows


def test_an_error_says_what_was_found_and_what_was_expected():
  error = rows.RowError('three columns', 'four', line=2)
  assert str(error) == 'three columns; expected four'
  assert error.line == 2
  assert str(error.at('file .en')) == 'file .en: three columns; expected four'


def test_a_byte_that_is_not_utf8_is_located():
  assert rows.decode('caf\u00e9'.encode()) == 'caf\u00e9'
  with pytest.raises(
    rows.RowError, match='the byte 0xe9 at column 4 is not UTF-8'
  ) as caught:
    rows.decode(b'one\ncaf\xe9')
  assert caught.value.line == 1


def test_long_text_is_shortened():
  assert rows.quote("it's") == repr("it's")
  shown = rows.quote('x' * 100)
  assert len(shown) == 62
  assert shown.endswith("x...'")
