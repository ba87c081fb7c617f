"""Every loader over damaged files: an error or the right rows, and an end."""

import json
import pathlib

import pytest
import seqio
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings, strategies as st

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.rows.formats import RowError
from synth_mtf.tasks import inspection
from synth_mtf.tasks.files import index
from synth_mtf.tasks.files.index import Part
from tests.tasks import folder

_BYTES = 1500
# Every reader but C4's, whose rows are those of JSON in a corpus.
_TASKS = [
  name
  for name in inspection.names(seqio.TaskRegistry)
  if not name.endswith(('_class', '_matched_v002', '_mismatched_v002'))
  and not name.startswith(('synth_c4', 'synth_wmt14_enfr'))
]
_DAMAGE = st.lists(
  st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 40),
    st.one_of(
      st.binary(max_size=8),
      st.sampled_from(
        [b'\n', b'\r\n', b'\t', b'"', b'\\', b'{', b']', b'\xef\xbb\xbf']
        + [b'\x00', b'\xff', b'null', b'-1', b'1e999', b'\\ud800', b'\n\n']
      ),
    ),
  ),
  min_size=1,
  max_size=4,
)


def _damaged(data: bytes, damage) -> bytes:
  for place, length, insert in damage:
    start = int(place * len(data))
    data = data[:start] + insert + data[start + length :]
  return data


def _whole(path, reader):
  header, columns = reader.read_header(path)
  return Part(reader, path, len(header.data), columns=columns)


def _rows(*parts):
  """The examples by record (None: refused), and their number."""
  rows, count = {}, 0
  for part in parts:
    for record, items in index.read(part):
      good = [item for item in items if not isinstance(item, RowError)]
      examples = [{k: v for k, v in e.items() if k != 'idx'} for e in good]
      count += len(examples)
      refused = not examples and items
      rows[repr(record.data)] = None if refused else examples
  return rows, count


def _first_part(data: bytes, suffix: str) -> bytes:
  if suffix == '.json':
    squad = json.loads(data)
    squad['data'] = squad['data'][:2]
    for article in squad['data']:
      del article['paragraphs'][1:]
    return json.dumps(squad).encode()
  if suffix == '.story':  # whose summary is at its end
    return data
  return data[: data.find(b'\n', _BYTES) + 1 or None]


@pytest.mark.slow  # one of many
@pytest.mark.parametrize('name', _TASKS)
def test_damage_is_found_or_harmless(name, made_data, tmp_path):
  splits = tasks.get(name).source.split_files.values()
  files_of_splits = (split.files(str(made_data)) for split in splits)
  readers = [item for files in files_of_splits for item in files.items()]
  if not readers:
    pytest.skip(f'no files of {name}')
  target, reader = readers[0]
  path = tmp_path
  files = reader.files(target)
  # Two reviews or stories, or one or two files of many rows.
  for file in files if len(files) < 3 else (files[0], files[-1]):
    original = pathlib.Path(file)
    data = _first_part(original.read_bytes(), original.suffix)
    path = tmp_path / original.relative_to(made_data)
    folder.write(path, data)
  target = str(tmp_path / pathlib.Path(target).relative_to(made_data))
  good = path.read_bytes()
  before, _ = _rows(_whole(target, reader))
  assert any(before.values())

  @settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
  )
  @given(_DAMAGE)
  def check(damage):
    path.write_bytes(_damaged(good, damage))
    try:
      file = index.scan(target, reader)
      after, count = _rows(_whole(target, reader))
      in_parts = _rows(*file.parts())
    except UserError:
      return  # the file as a whole is refused
    assert in_parts == (after, count)
    assert file.num_examples == count
    for row in sum(filter(None, after.values()), []):
      _check_label(reader, row.get('label'))
    same_header = path.read_bytes().split(b'\n')[0] == good.split(b'\n')[0]
    if same_header or not getattr(reader, 'header', False):
      assert all(after[d] == before[d] for d in before.keys() & after.keys())

  check()


def _check_label(reader, label):
  """A label is a class of the set, or a score of the scale."""
  classes = getattr(reader, 'labels', range(4))
  if config := getattr(reader, '_config', None):
    classes = config.label_classes
  if label is None:
    return
  if reader.schema['label'].dtype == tf.float32:
    assert 0 <= label <= 5
  else:
    assert isinstance(label, int)
    assert 0 <= label < len(classes)
