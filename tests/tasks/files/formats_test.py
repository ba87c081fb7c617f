"""How a file divides into records, and a record into values."""

import pytest

from synth_mtf.tasks.files import formats
from synth_mtf.tasks.files.rows import Record, RowError
from tests.tasks.files import folder

OBJECT = formats.parse_json_object(
  '{"text": "caf\\u00e9", "number": 3, "large": 4294967296, "true": true, '
  '"inner": {"a": 1}, "list": [{"b": "c"}], "half": "\\ud83d", '
  '"empty": [], "spans": [{"a": 0, "b": -7, "c": true, "d": 4294967296}, '
  '{"b": 2147483647, "a": 1, "c": 0, "d": 0}]}'
)


def test_values_are_asked_for_by_type():
  assert OBJECT.text('text') == 'caf\u00e9'
  assert OBJECT.integer('number') == 3
  assert OBJECT.object('inner').integer('a') == 1
  (inner,) = OBJECT.objects('list')
  assert inner.text('b') == 'c'
  assert OBJECT.integers('spans', 'a', 'b') == [(0, -7), (1, 2147483647)]
  assert OBJECT.integers('empty', 'a', 'b') == []
  assert 'number' in OBJECT and 'absent' not in OBJECT


@pytest.mark.parametrize(
  'ask, message',
  [
    (lambda o: o.text('number'), "'number': '3'; expected a string"),
    (lambda o: o.integer('text'), 'expected an integer'),
    (lambda o: o.integer('true'), 'expected a 32-bit integer'),
    (lambda o: o.integer('large'), 'expected a 32-bit integer'),
    (lambda o: o.text('absent'), "row without 'absent'"),
    (lambda o: o.object('list'), 'expected an object'),
    (lambda o: o.objects('inner'), 'expected a list'),
    (
      lambda o: o.objects('list')[0].text('x'),
      r"list\[0\] without 'x'",
    ),
    (lambda o: o.integers('spans', 'a', 'c'), "'c': 'true'; expected a 32-bit"),
    (lambda o: o.integers('spans', 'a', 'd'), "'d': '4294967296'; expected a"),
    (lambda o: o.integers('spans', 'a', 'x'), r"spans\[0\] without 'x'"),
    (lambda o: o.integers('text', 'a', 'b'), 'expected a list'),
    (lambda o: o.text('half'), 'half of a surrogate pair at character 0'),
  ],
)
def test_values_of_another_type(ask, message):
  with pytest.raises(RowError, match=message):
    ask(OBJECT)


@pytest.mark.parametrize('line', ['{"a": ', '[]', '3', '{"a": 1} x'])
def test_a_line_that_is_no_object(line):
  with pytest.raises(RowError, match='JSON'):
    formats.parse_json_object(line)


@pytest.mark.parametrize(
  'data, text',
  [
    (b'a row\n', 'a row'),
    (b'a row\r\n', 'a row'),
    (b'\xef\xbb\xbfa row\n', 'a row'),
    (b'a row', 'a row'),
  ],
)
def test_what_surrounds_a_row_is_no_part_of_it(data, text):
  assert formats.line_text(Record(data, 0)) == text


@pytest.mark.parametrize('data', [b'\n', b' \t\n', b'a\rrow\n'])
def test_what_is_no_row(data):
  with pytest.raises(RowError):
    formats.line_text(Record(data, 0))


def test_records_of_part_of_a_file(tmp_path):
  class Lines(formats.Reader):
    def parse(self, record, number, header):
      return [{'line': record.data}]

  path = str(folder.write(tmp_path / 'a', b'one\ntwo\nthree\n'))
  reader = Lines()
  with reader.open(path, 4) as stream:
    assert list(reader.records(stream, 8)) == [Record(b'two\n', 4)]
  assert reader.place(path, 4, 1) == f'{path}:3'


def test_a_folder_of_files(tmp_path):
  class Files(formats.FolderReader):
    folders = ('x', 'absent', 'y')

    def parse(self, record, number, header):
      return [{'text': record.data}]

  for name in ('y/b.txt', 'x/a.txt', 'x/c.md', 'x/b.txt'):
    folder.write(tmp_path / name, name.encode())
  reader = Files()
  names = ['x/a.txt', 'x/b.txt', 'y/b.txt']
  assert reader.files(str(tmp_path)) == [str(tmp_path / n) for n in names]
  with reader.open(str(tmp_path)) as stream:
    records = list(reader.records(stream))
  assert [record.data.decode() for record in records] == names
  assert reader.place(str(tmp_path), 2, 0) == f'{tmp_path / "y/b.txt"}:1'
