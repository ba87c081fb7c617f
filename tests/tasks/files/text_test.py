"""Readers of plain text."""

import pytest

from synth_mtf.tasks.files import text
from synth_mtf.tasks.files.rows import Record
from synth_mtf.tasks.files.streams import ByteStream
from tests.tasks.files import folder


def texts(reader, path):
  with ByteStream(str(path)) as stream:
    return [
      example['text']
      for record in reader.records(stream)
      for example in reader.parse(record, 0, None)
    ]


def test_a_passage_ends_at_an_empty_line(tmp_path):
  path = folder.write(
    tmp_path / 'a.txt', b'\n\none\nstill one\n\n \ntwo\n\nthree'
  )
  assert texts(text.PassageReader(), path) == [
    'one\nstill one',
    'two',
    'three',
  ]


def test_a_long_passage_ends_at_a_line(tmp_path):
  lines = [f'{i} ' + 'x' * 1000 for i in range(9)]
  path = folder.write(tmp_path / 'a.txt', '\n'.join(lines).encode())
  found = texts(text.PassageReader(), path)
  assert '\n'.join(found) == '\n'.join(lines)
  assert [passage.count('\n') for passage in found] == [4, 3]


def test_each_line_is_a_sentence(tmp_path):
  path = folder.write(tmp_path / 'a.txt', b'one\r\n\n  two \n')
  assert texts(text.SentenceReader(), path) == ['one', 'two']


def test_json_lines(tmp_path):
  path = folder.write(tmp_path / 'a.jsonl', b'{"text": "one", "url": "x"}\n')
  assert texts(text.TextJsonReader(), path) == ['one']


def test_a_text_is_on_one_side_and_one_in_fifty_is_held_out():
  many = [f'Text {i}.' for i in range(5000)]
  held = [one for one in many if text.held_out(one)]
  assert [one for one in many if not text.kept_in(one)] == held
  assert 70 < len(held) < 130


@pytest.mark.parametrize(
  'offset, expected', [(0, 'a mark'), (7, '\ufeffa mark')]
)
def test_only_the_first_line_may_have_a_mark(offset, expected):
  data = '\ufeffa mark\r\n'.encode()
  assert text.plain_text(Record(data, offset)) == expected
