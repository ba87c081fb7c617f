"""AG News and IMDB reviews, the encoder tasks of Table 7: a label is a word."""

from __future__ import annotations

import csv
import functools
import os
from collections.abc import Sequence

from t5.data import postprocessors, preprocessors
from t5.evaluation import metrics
from typing_extensions import override

from synth_mtf.tasks.files.formats import (
  LABEL,
  TEXT,
  Example,
  FolderReader,
  Reader,
  line_text,
)
from synth_mtf.tasks.files.rows import Record, RowError, quote
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.files.text import plain_text
from synth_mtf.tasks.registering import TOKENIZE, define

_AG_NEWS_WORDS = ('World', 'Sports', 'Business', 'Sci/Tech')
_IMDB_FOLDERS = ('neg', 'pos')
_IMDB_WORDS = ('negative', 'positive')


class AgNewsReader(Reader):
  """CSV without a header: class from 1 to 4, title, description."""

  schema = {'label': LABEL, 'title': TEXT, 'description': TEXT}
  _COLUMNS = ('class', 'title', 'description')

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    try:
      (row,) = csv.reader([line_text(record)], strict=True)
    except csv.Error as error:
      raise RowError(
        f'CSV that does not parse ({error})', 'quoted fields'
      ) from (error)
    if len(row) != len(self._COLUMNS):
      raise RowError(
        f'{len(row)} columns: {quote(" | ".join(row))}',
        f'{len(self._COLUMNS)} ({", ".join(self._COLUMNS)})',
      )
    classes = [str(1 + i) for i in range(len(_AG_NEWS_WORDS))]
    if row[0] not in classes:
      raise RowError(
        f'the class {quote(row[0])}', f'one of {", ".join(classes)}'
      )
    return [
      {
        'label': classes.index(row[0]),
        'title': row[1],
        'description': row[2],
      }
    ]


class ImdbReader(FolderReader):
  """`neg/ID_RATING.txt` and `pos/ID_RATING.txt`, a review each."""

  schema = {'label': LABEL, 'text': TEXT}
  folders = _IMDB_FOLDERS

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    text = plain_text(record)
    if not text:
      raise RowError('an empty file', 'a review')
    folder = os.path.basename(os.path.dirname(record.name))
    return [{'label': _IMDB_FOLDERS.index(folder), 'text': text}]


def _define(
  name: str,
  splits: dict[str, Split],
  words: Sequence[str],
  features: Sequence[str],
  tfds_name: str,
) -> str:
  return define(
    name,
    splits,
    preprocessors=[
      functools.partial(
        preprocessors.glue,
        benchmark_name=name,
        label_names=list(words),
        feature_names=features,
        id_key=None,
      ),
      *TOKENIZE,
    ],
    tfds_name=tfds_name,
    postprocess_fn=functools.partial(
      postprocessors.string_label_to_class_id, label_classes=list(words)
    ),
    metric_fns=[metrics.accuracy],
  )


TASKS = {
  'ag_news': _define(
    'ag_news',
    {
      split: Split.of(
        [f'ag_news_csv/{split}.csv', f'ag_news/{split}.csv'], AgNewsReader()
      )
      for split in ('train', 'test')
    },
    _AG_NEWS_WORDS,
    ('title', 'description'),
    'ag_news_subset:1.0.0',
  ),
  'imdb': _define(
    'imdb_reviews',
    {
      split: Split.of([f'aclImdb/{split}/', f'imdb/{split}/'], ImdbReader())
      for split in ('train', 'test')
    },
    _IMDB_WORDS,
    ('text',),
    'imdb_reviews/plain_text:1.0.0',
  ),
}
