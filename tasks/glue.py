"""GLUE from its official TSV files, arXiv 1804.07461.

The columns, label classes and label column of each task are those of TFDS's
builder configs, so that a row becomes the same example from either source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import tensorflow_datasets as tfds
from typing_extensions import override

from synth_mtf.tasks.files import formats
from synth_mtf.tasks.files.formats import (
  DroppedRow,
  Example,
  Oddity,
  Record,
  RowError,
  TsvReader,
  quote,
)
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import adopt

# The folder in our layout, its names in GLUE's download scripts, and no folder.
_ROOTS = ('glue/', 'glue_data/', 'GLUE/', '')
_CONFIGS = tfds.text.glue.Glue.builder_configs
_MAX_SIMILARITY = 5.0
_FILES = {'train': 'train', 'validation': 'dev', 'test': 'test'}


class GlueReader(TsvReader):
  """A TSV file of GLUE, described by TFDS's builder config."""

  # Line breaks cut some twenty rows of the official QQP. What TFDS leaves out
  # it leaves out of every set: a row too short to have a text or a label.
  dropped_rows = 64

  def __init__(self, config: tfds.text.glue.GlueConfig, labelled: bool) -> None:
    self._config = config
    self._labelled = labelled
    self.schema = {
      **dict.fromkeys(self.text_columns, formats.TEXT),
      'label': formats.LABEL if config.label_classes else formats.FLOAT,
      'idx': formats.INT,
    }
    self.columns = [*self.text_columns.values()]
    self.columns += [config.label_column] if labelled else []

  @property
  @override
  def key(self) -> str:
    part = 'labelled' if self._labelled else 'test'
    return f'glue/{self._config.name}/{part}'

  @property
  def text_columns(self) -> Mapping[str, str]:
    """The column of each text feature."""
    return self._config.text_features

  @override
  def example(self, row: Mapping[str, str], number: int) -> Example:
    texts = {name: row[column] for name, column in self.text_columns.items()}
    label: float = formats.NO_LABEL
    if self._labelled:
      label = self.label(row[self._config.label_column])
    return {**texts, 'label': label, 'idx': number}

  @override
  def oddities(self, row: Mapping[str, str]) -> list[Oddity]:
    return [
      Oddity(f'an empty {name!r}')
      for name, column in self.text_columns.items()
      if not row[column].strip()
    ]

  def label(self, text: str) -> float:
    """Returns the class that the label column names, by word or number."""
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


class ColaReader(GlueReader):
  """CoLA: source, label, the author's mark, sentence; without a header."""

  header = False
  dropped_rows = 0

  def __init__(self, config: tfds.text.glue.GlueConfig, labelled: bool) -> None:
    super().__init__(config, labelled)
    self.columns = ('source', config.label_column, 'mark', 'sentence')


class StsbReader(GlueReader):
  """STS-B: the label is a similarity from 0 to 5."""

  dropped_rows = 0  # TFDS would make a score of what is not there
  _WHOLE_SCORE = re.compile(rb'\.\d{3}$')

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example | RowError]:
    cut = not record.data.endswith(b'\n')
    if cut and self._labelled and not self._WHOLE_SCORE.search(record.data):
      raise RowError('a last line without a line end', 'its score in full')
    return super().parse(record, number, columns)

  @override
  def label(self, text: str) -> float:
    try:
      score = float(text)
    except ValueError:
      score = -1.0
    if not 0.0 <= score <= _MAX_SIMILARITY:
      raise RowError(f'the score {quote(text)}', 'a number from 0 to 5')
    return score


class MrpcReader(GlueReader):
  """MRPC: TFDS reads Microsoft's own files, and so names no columns for it."""

  marked = True
  dropped_rows = 0
  text_columns = {'sentence1': '#1 String', 'sentence2': '#2 String'}


def _splits(
  name: str,
  folder: str,
  reader: type[GlueReader] = GlueReader,
  test_reader: type[GlueReader] = GlueReader,
  files: Mapping[str, str] = _FILES,
) -> dict[str, Split]:
  """Returns the splits of the TFDS config `name`."""
  splits = {}
  for split, file in files.items():
    labelled = not file.startswith('test')
    kind = reader if labelled else test_reader
    splits[split] = Split.of(
      [f'{root}{folder}/{file}.tsv' for root in _ROOTS],
      kind(_CONFIGS[name], labelled),
      optional=not labelled,
    )
  return splits


_MATCHED, _MISMATCHED = (
  {'validation': f'dev_{part}', 'test': f'test_{part}'}
  for part in ('matched', 'mismatched')
)
_MNLI = {
  'train': 'train',
  **{f'{split}_matched': file for split, file in _MATCHED.items()},
  **{f'{split}_mismatched': file for split, file in _MISMATCHED.items()},
}
_SPLITS = {
  'cola': _splits('cola', 'CoLA', ColaReader),
  'sst2': _splits('sst2', 'SST-2'),
  'mrpc': _splits('mrpc', 'MRPC', MrpcReader, MrpcReader),
  'stsb': _splits('stsb', 'STS-B', StsbReader, StsbReader),
  'qqp': _splits('qqp', 'QQP'),
  'mnli': _splits('mnli', 'MNLI', files=_MNLI),
  'mnli_matched': _splits('mnli_matched', 'MNLI', files=_MATCHED),
  'mnli_mismatched': _splits('mnli_mismatched', 'MNLI', files=_MISMATCHED),
  'qnli': _splits('qnli', 'QNLI'),
  'rte': _splits('rte', 'RTE'),
  'wnli': _splits('wnli', 'WNLI'),
}

TASKS = {
  name: adopt(f'glue_{name}_v002', splits) for name, splits in _SPLITS.items()
}
