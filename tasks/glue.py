"""GLUE from its official TSV files, arXiv 1804.07461.

Columns, label classes and the label column come from TFDS's builder configs, so
that a row becomes the same example from either source.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow_datasets as tfds
from t5.data import postprocessors

from synth_mtf.rows import formats
from synth_mtf.storage import filesystem
from synth_mtf.tasks.registering import adopt, splits

# The folder in our layout, its names in GLUE's download scripts, and no folder.
_ROOTS = ('glue/', 'glue_data/', 'GLUE/', '')


@dataclasses.dataclass(eq=False)
class GlueReader(formats.Reader):
  """Reads a GLUE TSV file as TFDS's builder config describes it.

  As in TFDS, quotes are plain text, a carriage return ends a row, and files
  with a header may have empty lines, which are skipped.
  """

  name: str
  labelled: bool

  reports_line_ends = True
  header = True  # whether the first line names the columns
  leaves_out = False  # whether TFDS leaves out short rows

  def __post_init__(self) -> None:
    config = tfds.text.glue.Glue.builder_configs[self.name]
    self._config = config
    self._texts: Mapping[str, str] = config.text_features
    if self.name == 'mrpc':
      # TFDS reads Microsoft's original files, so its config names no columns.
      self._texts = {'sentence1': '#1 String', 'sentence2': '#2 String'}
      self.reports_line_ends = False  # the file starts with a byte order mark
    self.columns = list(self._texts.values())
    if self.labelled:
      self.columns.append(config.label_column)
    if self.name == 'cola' and self.labelled:
      self.header = False
      self.columns = ['source', config.label_column, 'mark', 'sentence']
    # Line breaks split some twenty rows of the official QQP. TFDS drops rows
    # that are too short to have a text or a label from every dataset, but reads
    # a missing STS-B score as NaN.
    if self.header and self.name not in ('mrpc', 'stsb'):
      self.leaves_out = True
    self.schema = {
      **dict.fromkeys(self._texts, formats.TEXT),
      'label': formats.LABEL if config.label_classes else formats.FLOAT,
      'idx': formats.INT,
    }

  def read_header(
    self, path: str
  ) -> tuple[formats.Record, Sequence[str] | None]:
    if not self.header:
      return super().read_header(path)
    with filesystem.reading(path) as stream, formats.fault_at(path, 1):
      first = next(formats.lines_and_returns(stream), b'')
      header = formats.Record(first, 0)
      names = header.line.split('\t')
      formats.check_header(names, self.columns)
    return header, names

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    for line in formats.lines_and_returns(stream):
      if line.strip(b'\r\n') or not self.header:
        yield formats.Record(line, start)
      start += len(line)

  def row(self, record: formats.Record) -> dict[str, str]:
    """Returns the columns by name."""
    names = record.columns or self.columns
    fields = record.line.split('\t')
    if len(fields) < len(names) and self.leaves_out:
      raise formats.Oddity('a broken row', formats.LEFT_OUT)
    return formats.by_name(names, fields[: len(names)])

  def parse(self, record: formats.Record) -> formats.Items:
    row = self.row(record)
    texts = {name: row[column] for name, column in self._texts.items()}
    label: float = formats.NO_LABEL
    if self.labelled:
      label = self.label(row[self._config.label_column])
    yield {**texts, 'label': label, 'idx': record.number}
    for name, text in texts.items():
      if not text.strip():
        yield formats.Oddity(f'an empty {name!r}')
    if record.line.count('\t') >= len(row):
      yield formats.Oddity('more columns than the header has', 'not used')
    if not record.data.endswith((b'\n', b'\r')):
      yield formats.Oddity('a last line without a line end')

  def label(self, text: str) -> float:
    """Returns the class of a label, which is a word or a number."""
    if not text and self.leaves_out:
      raise formats.Oddity('a broken row', formats.LEFT_OUT)
    return formats.class_of(text, self._config.label_classes)


class StsbReader(GlueReader):
  """Reads STS-B, whose label is a similarity from 0 to 5."""

  def parse(self, record: formats.Record) -> formats.Items:
    if self.labelled:
      # A score that is cut short would be read as another score.
      formats.expect(
        re.search(rb'([\r\n]|\.\d{3})\Z', record.data),
        'a last line without a line end',
        'its score in full',
      )
    return super().parse(record)

  def label(self, text: str) -> float:
    score = postprocessors.string_to_float(text)
    formats.expect(
      0.0 <= score <= 5.0,
      f'the score {formats.quote(text)}',
      'a number from 0 to 5',
    )
    return score


_FILES = {'train': 'train', 'validation': 'dev', 'test': 'test'}
_MATCHED = {'validation': 'dev_matched', 'test': 'test_matched'}
_MISMATCHED = {'validation': 'dev_mismatched', 'test': 'test_mismatched'}
_MNLI = {
  'train': 'train',
  'validation_matched': 'dev_matched',
  'test_matched': 'test_matched',
  'validation_mismatched': 'dev_mismatched',
  'test_mismatched': 'test_mismatched',
}


def _adopt(
  name: str,
  folder: str,
  reader: type[GlueReader] = GlueReader,
  files: Mapping[str, str] = _FILES,
) -> str:
  paths = {split: f'{folder}/{file}.tsv' for split, file in files.items()}
  reader_of_split = functools.partial(reader, name)
  return adopt(f'glue_{name}_v002', splits(_ROOTS, paths, reader_of_split))


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
