"""AG News and IMDB reviews, the encoder tasks of Table 7.

Labels are words in the text-to-text tasks. For encoders with a classification
head (`model_type = 'aligned'`), the label is a class, the target of the first
token; input tokens are marked, which the host does only for its own encoders.
"""

import contextlib
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
from synth_mtf.tasks.files import formats
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, define
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES


class AgNewsReader(formats.Reader):
  """Reads CSV without a header: class (1 to 4), title, description."""

  reports_line_ends = True
  schema = {
    **dict.fromkeys(('title', 'description'), formats.TEXT),
    'label': formats.LABEL,
  }
  _MOST_LINES = 100

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    while data := stream.readline():
      # A quoted field may contain line breaks.
      for _ in range(self._MOST_LINES - 1):
        if not data.count(b'"') % 2:
          break
        data += stream.readline()
      yield formats.Record(data, start)
      start += len(data)

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
  strict = text.count('"') % 2 == 1
  with contextlib.suppress(csv.Error, ValueError):
    (row,) = csv.reader(io.StringIO(text, newline=None), strict=strict)
    if len(row) >= 3:
      return row[:3]
  raise formats.RowError(
    f'CSV that does not parse: {formats.quote(text)}',
    'class, title, description',
  )


class ImdbReader(formats.FolderReader):
  """Reads `neg/ID_RATING.txt` and `pos/ID_RATING.txt`, one review per file."""

  schema = {'label': formats.LABEL, 'text': formats.TEXT}
  folders = ('neg', 'pos')

  def files(self, path: str) -> list[str]:
    files = super().files(path)
    classes = {_folder(file) for file in files}
    if len(classes) == 1:
      raise UserError(
        f'{path} has reviews of one class only ({classes.pop()}); expected '
        'neg/*.txt and pos/*.txt. Copy the whole folder.'
      )
    return sorted(files, key=os.path.basename)  # else all neg come first

  def parse(self, record: formats.Record) -> formats.Items:
    # Like TFDS, strip ASCII whitespace only and change nothing else.
    text = formats.decode(record.data.strip())
    label = self.folders.index(_folder(record.name))
    yield {'label': label, 'text': text}


def _folder(file: str) -> str:
  return os.path.basename(os.path.dirname(file))


@seqio.map_over_dataset
def class_of_label(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Converts a label to a class, counted from 1 because 0 is padding."""
  return {
    **row,
    'targets': 1 + tf.strings.to_number([row['targets']], tf.int32),
  }


@seqio.map_over_dataset
def mark_tokens(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Marks the input tokens in a feature that the host names."""
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
