"""Tasks on plain text: span corruption, and language modelling on LM1B.

Span corruption is T5's pretraining, on C4 or any folder of text: 15 % of the
tokens are noise, in spans of 3 tokens on average. A sentinel replaces each span
in the inputs, and the targets are the spans, each after its sentinel (arXiv
1910.10683, section 3.3), so that 512 inputs need 114 targets. LM1B (arXiv
1312.3005) is for decoder-only models: the target is one sentence, and there are
no inputs.
"""

import dataclasses
import functools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import seqio

from synth_mtf.tasks.files import formats
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, adopt, define
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

# One in this many texts is held out if a folder has no validation files.
HOLD_OUT = 50
_PASSAGE_BYTES = 4096


def held_out(text: str) -> bool:
  """Whether a text belongs to the validation split.

  The result depends only on the text, not on the order of files or the number
  of hosts, so that a duplicate is never in both splits.
  """
  return zlib.crc32(text.encode('utf-8')) % HOLD_OUT == 0


@dataclasses.dataclass(eq=False)
class SentenceReader(formats.Reader):
  """Reads plain text, one row per line; a file is divided by its size.

  A byte order mark is removed; a carriage return ends a row, too.

  Attributes:
    validation: True reads the held-out texts only, False the others, and None
      all of them, as TFDS keeps all of the official files.
  """

  validation: bool | None = None

  schema = {'text': formats.TEXT}
  indexed = False

  def parse(self, record: formats.Record) -> formats.Items:
    for text in self.texts(record):
      if self.validation is None or (
        text.strip() and held_out(text) == self.validation
      ):
        yield {'text': text}

  def texts(self, record: formats.Record) -> list[str]:
    lines = record.unmarked.splitlines()  # as TFDS: also at carriage returns
    return [formats.decode(line).strip() for line in lines]


class PassageReader(SentenceReader):
  """Reads plain text in passages, up to an empty line or about 4 kB long.

  A passage also ends after each megabyte, since such parts are read separately,
  but not in `.gz`.
  """

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    return formats.paragraphs(
      stream, start, lambda data: len(data) >= _PASSAGE_BYTES
    )

  def texts(self, record: formats.Record) -> list[str]:
    return [formats.decode(record.unmarked.replace(b'\r', b'')).strip()]


class TextJsonReader(SentenceReader):
  """Reads JSON lines with the text under "text", as in C4's own files."""

  def texts(self, record: formats.Record) -> list[str]:
    return [formats.json_row(record, {'text': str})['text']]


def _plain_or_gzip(*alternatives: Mapping[str, formats.Reader]) -> Split:
  return Split(
    [
      {**one, **{f'{path}.gz': reader for path, reader in one.items()}}
      for one in alternatives
    ]
  )


def _corpus_split(validation: bool) -> Split:
  json_lines = TextJsonReader(validation)
  return _plain_or_gzip(
    {
      'corpus/**/*.txt': PassageReader(validation),
      'corpus/**/*.jsonl': json_lines,
      'corpus/**/*.json': json_lines,
    }
  )


def _lm1b_split(official: str, validation: bool) -> Split:
  folder = '1-billion-word-language-modeling-benchmark-r13output/'
  roots = ('lm1b/', f'lm1b/{folder}', folder)
  # Other tokenized news, one sentence per line, can replace LM1B; some of its
  # lines are held out.
  return Split(
    [{root + official: SentenceReader()} for root in roots]
    + [{'corpus/news_sentences/*.txt': SentenceReader(validation)}]
  )


_SPAN_CORRUPTION = 'c4_v220_span_corruption'
_C4_SPLITS = {
  split: _plain_or_gzip(
    *(
      {f'{root}c4-{split}.*.json': TextJsonReader() for root in roots}
      for roots in (('c4/**/en/', 'en/'), ('c4/**/',))  # beside en.noclean
    )
  )
  for split in ('train', 'validation')
}

C4 = adopt(_SPAN_CORRUPTION, _C4_SPLITS, 'c4_span_corruption')
adopt(_SPAN_CORRUPTION, _C4_SPLITS)  # also under T5's name
define(
  'text_span_corruption',
  {'train': _corpus_split(False), 'validation': _corpus_split(True)},
  preprocessors=seqio.TaskRegistry.get(_SPAN_CORRUPTION).preprocessors,
)
define(
  'lm1b',
  {
    'train': _lm1b_split(
      'training-monolingual.tokenized.shuffled/news.en-*', False
    ),
    'test': _lm1b_split(
      'heldout-monolingual.tokenized.shuffled/news.en.heldout-*', True
    ),
  },
  'lm1b:1.1.0',
  preprocessors=[
    functools.partial(seqio.preprocessors.rekey, key_map={'targets': 'text'}),
    *TOKENIZE,
  ],
  output_features={'targets': OUTPUT_FEATURES['targets']},
)
