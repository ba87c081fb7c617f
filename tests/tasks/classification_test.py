"""AG News, IMDB and LM1B, which T5 lacks: the examples are those of TFDS."""

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


def test_lm1b(official_data, tmp_path, prepared):
  layout = (
    tmp_path
    / 'lm1b/1-billion-word-language-modeling-benchmark-r13output'
    / 'training-monolingual.tokenized.shuffled'
  )
  texts = copy_lines(
    official_data / 'corpus/news_sentences/newstest2014.en.tok.txt',
    layout / 'news.en-00001-of-00100',
  )
  prepared('lm1b:1.1.0', train=[{'text': text.strip()} for text in texts])
  rows = comparison.three_ways('synth_lm1b', 'train', tmp_path)
  assert sum(rows.values()) == ROWS
  assert list(tasks.get('synth_lm1b').output_features) == ['targets']
