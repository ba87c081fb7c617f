"""Every loader over damaged files: an error or the right rows, and an end."""

import gzip
import json
import pathlib
from collections.abc import Sequence
from typing import Optional, Union

import pytest
import seqio
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth_mtf import tasks
from synth_mtf.errors import UserError
from synth_mtf.tasks.files import formats, index
from synth_mtf.tasks.files.formats import RowError
from synth_mtf.tasks.files.index import Part

_BYTES = 1500
_FILES = {
  **{
    f'synth_glue_{name}_v002': f'glue/{folder}/train.tsv'
    for name, folder in {
      'cola': 'CoLA',
      'sst2': 'SST-2',
      'mrpc': 'MRPC',
      'stsb': 'STS-B',
      'qqp': 'QQP',
      'mnli': 'MNLI',
      'qnli': 'QNLI',
      'rte': 'RTE',
      'wnli': 'WNLI',
    }.items()
  },
  **{
    f'synth_super_glue_{name}': f'superglue/{folder}/train.jsonl'
    for name, folder in {
      'boolq_v102': 'BoolQ',
      'cb_v102': 'CB',
      'copa_v102': 'COPA',
      'multirc_v102': 'MultiRC',
      'record_v102': 'ReCoRD',
      'rte_v102': 'RTE',
      'wic_v102': 'WiC',
      'wsc_v102_simple_train': 'WSC',
    }.items()
  },
  'synth_squad_v010_allanswers': 'squad/dev-v1.1.json',
  'synth_text_span_corruption': 'corpus/wikitext-2/valid.txt',
  'synth_ag_news': 'ag_news_csv/test.csv',
  'synth_personachat': 'convai2/valid_self_original_no_cands.txt',
  'synth_wmt14_ende_v003': 'parallel/wmt14_en_de_tok/train.en',
  'synth_imdb_reviews': 'aclImdb/train/neg',
  'synth_cnn_dailymail_v002': 'cnn_dailymail/cnn/stories',
}
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


def _reader(name: str) -> formats.Reader:
  last = tasks.get(name).source.split_files['train'].layouts[-1]
  return next(iter(last.values()))


Rows = dict[str, Optional[list[formats.Example]]]


def _rows(path: str, reader: formats.Reader, *parts: Part) -> tuple[Rows, int]:
  """Returns the examples by record, None if it is refused, and their number."""
  header = reader.read_header(path)
  found: Rows = {}
  count = 0
  for part in parts or [Part(path, header.size, None, 0)]:
    for record, items in index.read(reader, part, header):
      examples = _labels(items)
      count += len(examples)
      refused = not examples and bool(items)
      found[repr(record.data)] = None if refused else examples
  return found, count


def _labels(
  examples: Sequence[Union[formats.Example, RowError]],
) -> list[formats.Example]:
  """Returns the examples without the position of their row."""
  return [
    {k: v for k, v in example.items() if k != 'idx'}
    for example in examples
    if not isinstance(example, RowError)
  ]


def _first_part(path: pathlib.Path) -> bytes:
  if path.suffix == '.json':
    squad = json.loads(path.read_bytes())
    squad['data'] = squad['data'][:2]
    for article in squad['data']:
      del article['paragraphs'][1:]
    return json.dumps(squad).encode()
  lines = path.open('rb')
  data = next(lines)
  for line in lines:
    if len(data) > _BYTES:
      break
    data += line
  return data


def test_every_loader_is_tried():
  readers = {type(_reader(name)).__name__ for name in _FILES}
  every = {
    type(reader).__name__
    for task in map(tasks.get, _all_tasks())
    for split in task.source.split_files.values()
    for layout in split.layouts
    for reader in layout.values()
  }
  covered_elsewhere = {'DprReader', 'TextJsonReader', 'SentenceReader'}
  assert every <= readers | covered_elsewhere


def _all_tasks():
  return [n for n in seqio.TaskRegistry.names() if n.startswith('synth_')]


@pytest.mark.slow  # one of many
@pytest.mark.parametrize('name', _FILES)
def test_damage_is_found_or_harmless(name, official_data, tmp_path):
  original = official_data / _FILES[name]
  folder = original.is_dir()
  if folder:
    original = sorted(original.iterdir())[5]  # in CNN's training part
  good = original.read_bytes() if folder else _first_part(original)
  reader = _reader(name)
  root = tmp_path / 'root'
  path = root / original.relative_to(official_data)
  path.parent.mkdir(parents=True)
  for other in reader.files(str(path)) if not folder else ():
    pathlib.Path(other).write_bytes(good)
  path.write_bytes(good)
  if name == 'synth_imdb_reviews':  # a class alone is refused
    (path.parent.parent / 'pos').mkdir()
    (path.parent.parent / 'pos/0_9.txt').write_bytes(good)
  target = str(root / _FOLDER_OF[name]) if folder else str(path)
  before, _ = _rows(target, reader)
  assert any(before.values())

  @settings(
    max_examples=100,
    deadline=5000,  # milliseconds: a hang is a failure
    derandomize=True,
    suppress_health_check=list(HealthCheck),
  )
  @given(_DAMAGE)
  def check(damage):
    path.write_bytes(_damaged(good, damage))
    try:
      found = index.scan(target, reader)
      after, count = _rows(target, reader)
      parts = _rows(target, reader, *found.parts) if count else (after, 0)
    except UserError:
      return  # the file as a whole is refused
    assert parts == (after, count)
    assert found.num_examples == count
    _check_labels(reader, [r for rows in after.values() for r in rows or ()])
    first = good.split(b'\n')[0]
    same_header = path.read_bytes().split(b'\n')[0] == first
    if same_header or not getattr(reader, 'header', False):
      assert all(after[d] == before[d] for d in before.keys() & after.keys())

  check()


_FOLDER_OF = {
  'synth_imdb_reviews': 'aclImdb/train',
  'synth_cnn_dailymail_v002': 'cnn_dailymail',
}


def _check_labels(reader, rows):
  """Labels are classes of the set, or scores of the scale."""
  classes = getattr(getattr(reader, '_config', None), 'label_classes', None)
  for row in rows:
    label = row.get('label')
    if label is None:
      continue
    if reader.schema['label'].dtype == tf.float32:
      assert 0 <= label <= 5
    else:
      assert isinstance(label, int)
      known = classes or getattr(reader, 'labels', None) or range(4)
      assert 0 <= label < len(known)


@settings(max_examples=40, deadline=5000, derandomize=True)
@given(cut=st.floats(0, 1, exclude_max=True), flip=st.integers(0, 255))
def test_damaged_gzip_is_refused_or_read(cut, flip, tmp_path_factory):
  text = b'\n\n'.join(b'Passage %d of a text.' % i for i in range(200))
  packed = bytearray(gzip.compress(text))
  packed[int(cut * len(packed))] ^= flip
  path = tmp_path_factory.mktemp('gzip') / 'a.txt.gz'
  path.write_bytes(packed)
  reader = _reader('synth_text_span_corruption')
  try:
    rows, _ = _rows(str(path), reader)
  except UserError as error:
    assert str(path) in str(error)
    return
  texts = {row['text'] for found in rows.values() if found for row in found}
  assert texts <= set(text.decode().split('\n\n'))
