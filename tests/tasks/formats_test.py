"""How a file divides into rows, and what a row may hold."""

from typing import Any

import pytest

from synth_mtf.rows import formats
from synth_mtf.rows.formats import Record, RowError
from synth_mtf.tasks import super_glue, text
from synth_mtf.tasks.files import index
from tests.tasks import folder

STRUCTURE = {
  'text': str,
  'inner': {'n': int},
  'list': [{'a': str}],
  'any': list,
}
ROW = (
  b'{"text": "caf\\u00e9", "inner": {"n": -2147483648, "more": 1}, '
  b'"list": [{"a": "b"}, {"a": ""}], "any": [1, null]}'
)


def test_json_of_the_structure_is_accepted():
  row = formats.json_row(Record(ROW, 0), STRUCTURE)
  assert row['text'] == 'caf\u00e9'
  assert row['inner']['n'] == -(2**31)


@pytest.mark.parametrize(
  'old, new, message',
  [
    ('"caf\\u00e9"', '3', "'text': '3'; expected a string"),
    ('"text"', '"txt"', "row without 'text', with .*; expected the keys text"),
    ('-2147483648', '"1"', "'n': '1'; expected an integer"),
    ('-2147483648', 'true', "'n': 'true'; expected an integer"),
    ('-2147483648', '2147483648', "'n': 2147483648; expected a 32-bit"),
    ('-2147483648', '-2147483649', "'n': -2147483649; expected a 32-bit"),
    ('"n"', '"m"', "'inner' without 'n'"),
    ('{"a": ""}', '{}', r"'list'\[1\] without 'a'"),
    ('[1, null]', '{}', "'any': '{}'; expected a list"),
    ('{"a": "b"}', '7', r"'list'\[0\]: '7'; expected an object"),
    ('\\u00e9', '\\ud83d', "'text' has half of a surrogate pair at .* 3"),
    ('null]}', 'null]} x', r'JSON that does not parse .*column'),
    ('null]}', 'null]', "JSON that does not parse .*Expecting ','"),
  ],
)
def test_json_of_another_structure(old, new, message):
  changed = ROW.replace(old.encode(), new.encode())
  assert changed != ROW
  with pytest.raises(RowError, match=message):
    formats.json_row(Record(changed, 0), STRUCTURE)


@pytest.mark.parametrize('line', [b'[]', b'3', b'"a"', b'[' * 100_000])
def test_a_line_that_is_no_object(line):
  with pytest.raises(RowError, match='JSON|expected an object'):
    formats.json_row(Record(line, 0), {})


def _read(reader, path, start=0, end=None):
  part = index.Part(reader, str(path), start, end)
  items: list[Any] = [item for _, items in index.read(part) for item in items]
  return [example['text'] for example in items]


@pytest.mark.parametrize(
  'reader, data, texts',
  [
    (
      text.PassageReader(),
      b'\n\none\nstill one\n\n \ntwo\n\nthree',
      ['one\nstill one', 'two', 'three'],
    ),
    (text.PassageReader(), b'one\r\ntwo\rthree\n', ['one\ntwo\nthree']),
    (text.SentenceReader(), b'one\r\n\n  two \n', ['one', '', 'two']),
    (
      text.SentenceReader(),
      '\ufeffone\n\ufefftwo'.encode(),
      ['one', '\ufefftwo'],
    ),
    (text.TextJsonReader(), b'{"text": "one", "url": "x"}\n', ['one']),
  ],
)
def test_rows_of_text(reader, data, texts, tmp_path):
  assert _read(reader, folder.write(tmp_path / 'a.txt', data)) == texts


def test_a_byte_order_mark_is_no_part_of_a_sentence(tmp_path):
  lines = '\ufeffAnn met Bob as she ran.\nshe\nAnn,Bob\nAnn\n\n'
  path = folder.write(tmp_path / 'a.txt', lines.encode())
  rows = index.read(index.Part(super_glue.DprReader(), str(path)))
  examples: list[Any] = [item for _, items in rows for item in items]
  assert [x['sentence'] for x in examples] == ['Ann met Bob as she ran.']


def test_a_long_passage_ends_at_a_line(tmp_path):
  lines = [f'{i} ' + 'x' * 1000 for i in range(9)]
  path = folder.write(tmp_path / 'a.txt', '\n'.join(lines).encode())
  passages = _read(text.PassageReader(), path)
  assert '\n'.join(passages) == '\n'.join(lines)
  assert [passage.count('\n') for passage in passages] == [4, 3]


@pytest.mark.parametrize('gap', ['', ' '])
def test_a_file_of_one_line_is_read_in_parts(gap, tmp_path, monkeypatch):
  monkeypatch.setattr(text, '_LINE_BYTES', 100)
  monkeypatch.setattr(text, '_PASSAGE_BYTES', 100)
  whole = gap.join(f'w\u00f6rd\u20ac{i}' for i in range(200))
  path = folder.write(tmp_path / 'a.txt', whole.encode())
  reader = text.PassageReader()
  size = len(whole.encode())
  for part in (450, size):
    passages = []
    for start in range(0, size, part):
      passages += _read(reader, path, start, start + part)
    assert gap.join(passages) == whole
    assert max(len(passage.encode()) for passage in passages) < 200


def test_a_text_is_on_one_side_and_one_in_fifty_is_held_out(tmp_path):
  many = [f'Text {i}.' for i in range(5000)]
  path = folder.write(tmp_path / 'a.txt', '\n'.join(many).encode())
  held = [line for line in many if text.held_out(line)]
  assert _read(text.SentenceReader(True), path) == held
  kept = _read(text.SentenceReader(False), path)
  assert sorted([*held, *kept]) == sorted(many)
  assert 70 < len(held) < 130
