"""GLUE from its official TSV files, arXiv 1804.07461.

Columns, label classes and the label column come from TFDS's builder configs, so
that a row becomes the same example from either source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow_datasets as tfds

from synth_mtf.tasks.files import formats, storage
from synth_mtf.tasks.files.formats import (
  DroppedRow,
  Items,
  Oddity,
  Reader,
  Record,
  RowError,
  quote,
)
from synth_mtf.tasks.registering import adopt, splits

# The folder in our layout, its names in GLUE's download scripts, and none.
_ROOTS = ('glue/', 'glue_data/', 'GLUE/', '')


class GlueReader(Reader):
  """Reads a GLUE TSV file as TFDS's builder config describes it.

  Quote characters are plain text.
  """

  reports_line_ends = True

  def __init__(self, name: str, labelled: bool) -> None:
    config = tfds.text.glue.Glue.builder_configs[name]
    super().__init__(name, labelled)
    self._config = config
    self._labelled = labelled
    self._texts: Mapping[str, str] = config.text_features
    if name == 'mrpc':
      # TFDS reads Microsoft's original files, so its config names no columns.
      self._texts = {'sentence1': '#1 String', 'sentence2': '#2 String'}
      self.reports_line_ends = False  # the file starts with a byte order mark
    # The columns in use, or all columns if the file has no header.
    self.columns = [*self._texts.values(), *[config.label_column] * labelled]
    self.header = name != 'cola' or not labelled
    if not self.header:
      self.columns = ['source', config.label_column, 'mark', 'sentence']
    # Line breaks split some twenty rows of the official QQP. TFDS drops rows
    # that are too short to have a text or a label from every dataset, but reads
    # a missing STS-B score as NaN.
    if self.header and name not in ('mrpc', 'stsb'):
      self.dropped_rows = 64
    self.schema = {
      **dict.fromkeys(self._texts, formats.TEXT),
      'label': formats.LABEL if config.label_classes else formats.FLOAT,
      'idx': formats.INT,
    }

  def read_header(self, path: str) -> tuple[Record, Sequence[str] | None]:
    if not self.header:
      return super().read_header(path)
    return formats.tsv_header(path, self.columns)

  def records(
    self, path: str, start: int = 0, end: int | None = None
  ) -> Iterator[Record]:
    with storage.reading(path) as stream:
      stream.seek(start)
      for lines in stream:
        for line in lines.splitlines(keepends=True):  # at carriage returns
          if start == end:
            return
          if line.strip(b'\r\n') or not self.header:
            yield Record(line, start)
          start += len(line)

  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Items:
    names = columns or self.columns
    broken = DroppedRow if self.dropped_rows else RowError
    fields = record.line.split('\t')
    if len(fields) < len(names):
      raise broken(
        f'{len(fields)} tab-separated columns: {quote(" | ".join(fields))}',
        f'{len(names)} ({", ".join(names)})',
      )
    row = dict(zip(names, fields))
    texts = {name: row[column] for name, column in self._texts.items()}
    label = (
      self.label(row[self._config.label_column])
      if self._labelled
      else formats.NO_LABEL
    )
    empty = [name for name, text in texts.items() if not text.strip()]
    found: list[formats.Example | RowError] = [
      {**texts, 'label': label, 'idx': number},
      *(Oddity(f'an empty {name!r}') for name in empty),
    ]
    if len(fields) > len(names):
      found.append(Oddity('more columns than the header has', 'not used'))
    if not record.data.endswith((b'\n', b'\r')):
      found.append(Oddity('a last line without a line end'))
    return found

  def label(self, text: str) -> float:
    """Returns the class of a label, which is a word or a number."""
    classes = self._config.label_classes
    if not text and self.dropped_rows:
      raise DroppedRow('a row without a label', 'one')
    if text in classes:
      return classes.index(text)
    numbers = [str(i) for i in range(len(classes))]
    if text.strip() in numbers:
      return numbers.index(text.strip())
    expected = ', '.join(f'{n} or {name}' for n, name in zip(numbers, classes))
    raise RowError(f'the label {quote(text)}', f'one of: {expected}')


class StsbReader(GlueReader):
  """Reads STS-B, whose label is a similarity from 0 to 5."""

  def parse(self, record: Record, number: int, columns: Any) -> Items:
    whole = re.search(rb'([\r\n]|\.\d{3})\Z', record.data)
    if self._labelled and not whole:
      raise RowError('a last line without a line end', 'its score in full')
    return super().parse(record, number, columns)

  def label(self, text: str) -> float:
    try:
      score = float(text)
    except ValueError:
      score = -1.0
    if not 0.0 <= score <= 5.0:
      raise RowError(f'the score {quote(text)}', 'a number from 0 to 5')
    return score


_FILES = {'train': 'train', 'validation': 'dev', 'test': 'test'}
_MATCHED, _MISMATCHED = (
  {'validation': f'dev_{part}', 'test': f'test_{part}'}
  for part in ('matched', 'mismatched')
)
_MNLI = {
  'train': 'train',
  **{f'{split}_matched': file for split, file in _MATCHED.items()},
  **{f'{split}_mismatched': file for split, file in _MISMATCHED.items()},
}


def _adopt(
  name: str,
  folder: str,
  reader: type[GlueReader] = GlueReader,
  files: Mapping[str, str] = _FILES,
) -> str:
  paths = {split: f'{folder}/{file}.tsv' for split, file in files.items()}
  return adopt(
    f'glue_{name}_v002', splits(_ROOTS, paths, functools.partial(reader, name))
  )


TASKS = (
  _adopt('cola', 'CoLA'),
  _adopt('sst2', 'SST-2'),
  _adopt('mrpc', 'MRPC'),
  _adopt('stsb', 'STS-B', StsbReader),
  _adopt('qqp', 'QQP'),
  _adopt('mnli', 'MNLI', files=_MNLI),
  _adopt('mnli_matched', 'MNLI', files=_MATCHED),
  _adopt('mnli_mismatched', 'MNLI', files=_MISMATCHED),
  _adopt('qnli', 'QNLI'),
  _adopt('rte', 'RTE'),
)
WNLI = _adopt('wnli', 'WNLI')
