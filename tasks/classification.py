"""AG News and IMDB reviews, the encoder tasks of Table 7.

As text to text a label is a word. For an encoder with a classification head
(`model_type = 'aligned'`) it is a class, the target of the first token, and the
tokens of the inputs are marked, which the host does only for its own encoders.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
from t5.data import postprocessors, preprocessors
from t5.evaluation import metrics
from typing_extensions import override

from synth_mtf.errors import UserError
from synth_mtf.tasks.files.formats import (
  LABEL,
  TEXT,
  Example,
  FolderReader,
  Oddity,
  Reader,
  Record,
  RowError,
  decode,
  quote,
)
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, define
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

_AG_NEWS_WORDS = ('World', 'Sports', 'Business', 'Sci/Tech')
_IMDB_FOLDERS = ('neg', 'pos')
_IMDB_WORDS = ('negative', 'positive')


class AgNewsReader(Reader):
  """CSV without a header: class from 1 to 4, title, description."""

  schema = {'label': LABEL, 'title': TEXT, 'description': TEXT}
  _COLUMNS = ('class', 'title', 'description')
  _MOST_LINES = 100

  @override
  def records(self, stream: Any, start: int) -> Iterator[Record]:
    while data := stream.readline():
      # A field may have line breaks between its quotes.
      for _ in range(self._MOST_LINES - 1):
        if not data.count(b'"') % 2:
          break
        data += stream.readline()
      yield Record(data, start)
      start += len(data)

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    row, odd = _csv_row(record)
    if len(row) < len(self._COLUMNS):
      raise RowError(
        f'{len(row)} columns: {quote(" | ".join(row))}',
        f'{len(self._COLUMNS)} ({", ".join(self._COLUMNS)})',
      )
    if len(row) > len(self._COLUMNS):
      odd.append(Oddity('more than three columns', 'not used'))
    classes = [str(1 + i) for i in range(len(_AG_NEWS_WORDS))]
    if row[0].strip() not in classes:
      raise RowError(
        f'the class {quote(row[0])}', f'one of {", ".join(classes)}'
      )
    return [
      {
        'label': classes.index(row[0].strip()),
        'title': row[1],
        'description': row[2],
      },
      *odd,
    ]


def _csv_row(record: Record) -> tuple[list[str], list[Oddity]]:
  """Returns the columns of one row, read as leniently as TFDS reads it."""
  text = decode(record.data)
  if not record.start:
    text = text.removeprefix('\ufeff')
  text = text.replace('\r\n', '\n').replace('\r', '\n')
  if not text.strip():
    raise RowError('an empty line', 'a row')
  error = None
  try:
    (row,) = csv.reader(io.StringIO(text, newline=''), strict=True)
    return row, []
  except (csv.Error, ValueError) as strict_error:
    error = strict_error
  if not text.count('"') % 2:
    with contextlib.suppress(csv.Error, ValueError):
      (row,) = csv.reader(io.StringIO(text, newline=''))
      return row, [Oddity('a quote inside a field')]
  raise RowError(
    f'CSV that does not parse ({error})', 'quoted fields'
  ) from error


class ImdbReader(FolderReader):
  """`neg/ID_RATING.txt` and `pos/ID_RATING.txt`, a review each."""

  schema = {'label': LABEL, 'text': TEXT}
  folders = _IMDB_FOLDERS

  @override
  def names(self, path: str) -> list[str]:
    names = super().names(path)
    classes = {os.path.dirname(name) for name in names}
    for missing in sorted({*_IMDB_FOLDERS} - classes) if classes else ():
      raise UserError(
        f'{path} has reviews of one class only; expected {missing}/*.txt too. '
        'Copy the whole folder.'
      )
    return names

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    # As TFDS: white space of ASCII alone is stripped, nothing else is altered.
    text = decode(record.data.strip())
    folder = os.path.basename(os.path.dirname(record.name))
    example = {'label': _IMDB_FOLDERS.index(folder), 'text': text}
    return [example] if text else [example, Oddity('an empty review')]


@seqio.map_over_dataset
def class_of_word(
  row: dict[str, tf.Tensor], words: Sequence[str]
) -> dict[str, tf.Tensor]:
  """Converts the word of a label to its class, counted from 1: 0 is padding."""
  found = tf.where(tf.equal(words, row['targets']))[:, 0]
  return {**row, 'targets': tf.cast(found, tf.int32) + 1}


@seqio.map_over_dataset
def mark_tokens(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Marks the tokens of the inputs; the feature's name is the host's."""
  return {**row, 'targets_segmentation': tf.ones_like(row['inputs'])}


def _define(
  name: str,
  splits: dict[str, Split],
  words: Sequence[str],
  features: Sequence[str],
  tfds_name: str,
) -> list[str]:
  """Registers `synth_<name>`, and `synth_<name>_class` for an encoder."""
  as_text = functools.partial(
    preprocessors.glue,
    benchmark_name=name,
    label_names=list(words),
    feature_names=features,
    id_key=None,
  )
  classes = seqio.PassThroughVocabulary(1 + len(words))
  return [
    define(
      name,
      splits,
      preprocessors=[as_text, *TOKENIZE],
      tfds_name=tfds_name,
      postprocess_fn=functools.partial(
        postprocessors.string_label_to_class_id, label_classes=list(words)
      ),
      metric_fns=[metrics.accuracy],
    ),
    define(
      f'{name}_class',
      splits,
      preprocessors=[
        as_text,
        functools.partial(class_of_word, words=list(words)),
        *TOKENIZE,
        mark_tokens,
      ],
      tfds_name=tfds_name,
      output_features={
        'inputs': OUTPUT_FEATURES['inputs'],
        'targets': seqio.Feature(classes, add_eos=False),
        'targets_segmentation': seqio.Feature(classes, add_eos=False),
      },
    ),
  ]


_AG_NEWS, _AG_NEWS_CLASS = _define(
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
)
_IMDB, _IMDB_CLASS = _define(
  'imdb_reviews',
  {
    split: Split.of([f'aclImdb/{split}/', f'imdb/{split}/'], ImdbReader())
    for split in ('train', 'test')
  },
  _IMDB_WORDS,
  ('text',),
  'imdb_reviews/plain_text:1.0.0',
)

TASKS = {
  'ag_news': _AG_NEWS,
  'imdb': _IMDB,
  'ag_news_class': _AG_NEWS_CLASS,
  'imdb_class': _IMDB_CLASS,
}
