"""LM1B over its own layout."""

from synth_mtf import tasks
from tests.tasks import comparison
from tests.tasks.translation_test import ROWS, copy_lines


def test_examples_are_the_sentences_of_tfds(official_data, tmp_path, prepared):
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
