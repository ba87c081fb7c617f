"""AG News and IMDB, which T5 has not: the examples are those of TFDS."""

import csv
import shutil

from synth_mtf import tasks
from tests.tasks import comparison
from tests.tasks.translation_test import ROWS, copy_lines


def test_ag_news(official_data, tmp_path, prepared):
  path = tmp_path / 'ag_news_csv/train.csv'
  copy_lines(official_data / 'ag_news_csv/test.csv', path)
  with path.open(newline='', encoding='utf-8') as stream:
    rows = [
      {'label': int(label) - 1, 'title': title, 'description': text}
      for label, title, text in csv.reader(stream)
    ]
  prepared('ag_news_subset:1.0.0', train=rows)
  found = comparison.three_ways('synth_ag_news', 'train', tmp_path)
  words = {dict(row)['targets_pretokenized'] for row in found}
  assert words == {b'World', b'Sports', b'Business', b'Sci/Tech'}
  ours = tasks.get('synth_ag_news')
  assert [ours.postprocess_fn(w) for w in ('World', 'Sci/Tech', 'x')] == [
    0,
    3,
    -1,
  ]


def test_imdb(official_data, tmp_path, prepared):
  rows = []
  for label in ('neg', 'pos'):
    folder = official_data / 'aclImdb/train' / label
    for path in sorted(folder.iterdir())[: ROWS // 2]:
      target = tmp_path / 'aclImdb/train' / label / path.name
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(path, target)
      text = path.read_text(encoding='utf-8')
      rows.append({'text': text.strip(), 'label': label})
  prepared('imdb_reviews/plain_text:1.0.0', train=rows)
  found = comparison.three_ways('synth_imdb_reviews', 'train', tmp_path)
  assert sum(found.values()) == ROWS
