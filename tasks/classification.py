"""AG News and IMDB reviews, the encoder tasks of Table 7.

Labels are words in the text-to-text tasks. For encoders with a classification
head (`model_type = 'aligned'`), the label is a class, and the first token's
target.
"""

import csv
import functools
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import seqio
import tensorflow.compat.v2 as tf
from t5.data import postprocessors, preprocessors
from t5.evaluation import metrics

from synth_mtf.errors import UserError
from synth_mtf.rows import formats
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, define
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES


class AgNewsReader(formats.Reader):
  """Reads CSV without a header: class (1 to 4), title, description."""

  reports_line_ends = True
  schema = {
    'title': formats.TEXT,
    'description': formats.TEXT,
    'label': formats.LABEL,
  }
  _MOST_LINES = 100  # of a row, in case a quote is never closed

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    data = b''
    lines = 0
    for line in stream:
      data += line
      lines += 1
      inside_quotes = data.count(b'"') % 2 == 1  # where lines may break
      if inside_quotes and lines < self._MOST_LINES:
        continue
      yield formats.Record(data, start)
      start += len(data)
      data = b''
      lines = 0
    if data:
      yield formats.Record(data, start)

  def parse(self, record: formats.Record) -> formats.Items:
    label, title, description = _csv_row(formats.decode(record.unmarked))
    formats.expect(
      label.strip() in ('1', '2', '3', '4'),
      f'the class {formats.quote(label)}',
      'one of 1, 2, 3, 4',
    )
    yield {'label': int(label) - 1, 'title': title, 'description': description}


def _csv_row(text: str) -> list[str]:
  """Returns the first three columns."""
  # As lenient as TFDS, except that an unclosed quote is an error.
  unclosed = text.count('"') % 2 == 1
  try:
    (row,) = csv.reader(io.StringIO(text, newline=None), strict=unclosed)
  except (csv.Error, ValueError):
    row = []
  formats.expect(
    len(row) >= 3,
    f'CSV that does not parse: {formats.quote(text)}',
    'class, title, description',
  )
  return row[:3]


class ImdbReader(formats.FolderReader):
  """Reads `neg/ID_RATING.txt` and `pos/ID_RATING.txt`, one review per file."""

  schema = {'label': formats.LABEL, 'text': formats.TEXT}
  folders = ('neg', 'pos')

  def find(self, path: str) -> list[str]:
    files = super().find(path)
    classes = {_folder(file) for file in files}
    if len(classes) == 1:
      raise UserError(
        f'{path} has reviews of one class only ({classes.pop()}); expected '
        'neg/*.txt and pos/*.txt. Copy the whole folder.'
      )
    # In the order of the paths, all negative reviews would come first.
    return sorted(files, key=os.path.basename)

  def parse(self, record: formats.Record) -> formats.Items:
    # Like TFDS, strip ASCII whitespace only and change nothing else.
    text = formats.decode(record.data.strip())
    label = self.folders.index(_folder(record.name))
    yield {'label': label, 'text': text}


def _folder(file: str) -> str:
  return os.path.basename(os.path.dirname(file))


@tf.autograph.experimental.do_not_convert
@seqio.map_over_dataset
def class_of_label(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Converts a label to a class, counted from 1 because 0 is padding."""
  return {
    **row,
    'targets': 1 + tf.strings.to_number([row['targets']], tf.int32),
  }


@tf.autograph.experimental.do_not_convert
@seqio.map_over_dataset
def mark_tokens(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Adds the feature by which the host tells tokens from padding.

  The host adds it by itself only for its own kinds of encoder.
  """
  return {**row, 'targets_segmentation': tf.ones_like(row['inputs'])}


def _define(
  name: str,
  tfds_name: str,
  splits: Mapping[str, Split],
  words: Sequence[str],
  features: Sequence[str],
) -> None:
  """Registers `synth_<name>` and, for encoders, `synth_<name>_class`."""
  as_text = functools.partial(
    preprocessors.glue,
    benchmark_name=name,
    label_names=words,
    feature_names=features,
    id_key=None,
  )
  numbers = [str(i) for i in range(len(words))]
  class_feature = seqio.Feature(
    seqio.PassThroughVocabulary(1 + len(words)), add_eos=False
  )
  define(
    name,
    splits,
    tfds_name,
    preprocessors=[as_text, *TOKENIZE],
    postprocess_fn=functools.partial(
      postprocessors.string_label_to_class_id, label_classes=words
    ),
    metric_fns=[metrics.accuracy],
  )
  define(
    f'{name}_class',
    splits,
    tfds_name,
    preprocessors=[
      functools.partial(as_text, label_names=numbers),
      class_of_label,
      *TOKENIZE,
      mark_tokens,
    ],
    output_features={
      'inputs': OUTPUT_FEATURES['inputs'],
      'targets': class_feature,
      'targets_segmentation': class_feature,
    },
  )


_define(
  'ag_news',
  'ag_news_subset:1.0.0',
  {
    split: Split.of(
      [f'ag_news_csv/{split}.csv', f'ag_news/{split}.csv'], AgNewsReader()
    )
    for split in ('train', 'test')
  },
  words=['World', 'Sports', 'Business', 'Sci/Tech'],
  features=['title', 'description'],
)
_define(
  'imdb_reviews',
  'imdb_reviews/plain_text:1.0.0',
  {
    split: Split.of([f'aclImdb/{split}/', f'imdb/{split}/'], ImdbReader())
    for split in ('train', 'test')
  },
  words=['negative', 'positive'],
  features=['text'],
)
