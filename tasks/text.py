"""Tasks of text alone: span corruption, and language modelling on LM1B.

Span corruption is T5's pretraining, on C4 or on any folder of text: 15 % of the
tokens are noise, in spans of 3 on average; each span becomes one sentinel of
the inputs, and the targets are the spans, each after its sentinel (arXiv
1910.10683, section 3.3). 512 inputs then need 114 targets. LM1B (arXiv
1312.3005) is for a decoder alone: the targets are one sentence, and there are
no inputs.
"""

from __future__ import annotations

import contextlib
import functools
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import seqio
from typing_extensions import override

from synth_mtf.tasks.files import storage
from synth_mtf.tasks.files.formats import (
  BOM,
  TEXT,
  Example,
  Reader,
  Record,
  decode,
  json_row,
)
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import TOKENIZE, adopt, define
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

# One text in this many is held out of a folder that has no validation files.
HOLD_OUT = 50
_PASSAGE_BYTES = 4096


def keep_all(text: str) -> bool:
  """Keeps every text."""
  del text
  return True


def held_out(text: str) -> bool:
  """Whether a text belongs to the validation split.

  That depends on the text alone, so that neither the order of the files nor the
  number of hosts changes it, and a repeated text is never in both splits.
  """
  return zlib.crc32(text.encode('utf-8')) % HOLD_OUT == 0


def kept_in(text: str) -> bool:
  """Whether a text belongs to the training split."""
  return not held_out(text)


class CorpusReader(Reader):
  """Base class of text that is streamed: no file is read before its first use.

  A byte order mark or a carriage return is not part of the text.
  """

  schema = {'text': TEXT}
  indexed = False

  def __init__(self, keep: Callable[[str], bool] = keep_all) -> None:
    self._keep = keep

  @property
  @override
  def key(self) -> str:
    return f'{type(self).__name__}/{self._keep.__name__}/{HOLD_OUT}'

  @override
  @contextlib.contextmanager
  def open(
    self, path: str, start: int = 0, end: int | None = None
  ) -> Iterator[tuple[Any, int]]:
    """Opens the lines that start between two bytes."""
    with storage.reading(path) as stream:
      if start:
        stream.seek(start - 1)
        start = start - 1 + len(stream.readline())
      if end is None:
        yield stream, start
        return
      data = stream.read(max(end - start, 0))
      if data and not data.endswith(b'\n'):
        data += stream.readline()
      yield io.BytesIO(data), start

  @override
  def oddity(self, record: Record) -> None:
    return None

  @override
  def parse(
    self, record: Record, number: int, columns: Sequence[str] | None
  ) -> Sequence[Example]:
    text = self.text(record)
    return [{'text': text}] if text.strip() and self._keep(text) else []

  def text(self, record: Record) -> str:
    """Returns the text of a record, without what surrounds it."""
    data = record.data if record.start else record.data.removeprefix(BOM)
    return decode(data.replace(b'\r', b'')).strip()


class SentenceReader(CorpusReader):
  """Plain text: each line is a row."""


class PassageReader(CorpusReader):
  """Plain text: a row is the lines up to an empty one, or some 4 kB of lines.

  Parts of a megabyte are read separately, so that a passage also ends there.
  """

  @override
  def records(self, stream: Any, start: int) -> Iterator[Record]:
    passage = b''
    for line in stream:
      passage += line if line.strip() else b''
      if passage and (not line.strip() or len(passage) >= _PASSAGE_BYTES):
        yield Record(passage, start)
        start += len(passage)
        passage = b''
      if not line.strip():
        start += len(line)
    if passage:
      yield Record(passage, start)


class TextJsonReader(CorpusReader):
  """JSON lines with the text under "text", as in C4's own files."""

  @override
  def text(self, record: Record) -> str:
    return json_row(record, {'text': str})['text']


def _corpus_split(keep: Callable[[str], bool]) -> Split:
  passages, json_lines = PassageReader(keep), TextJsonReader(keep)
  readers = {'txt': passages, 'jsonl': json_lines, 'json': json_lines}
  return Split(
    [
      {
        f'corpus/**/*.{suffix}{packed}': reader
        for suffix, reader in readers.items()
        for packed in ('', '.gz')
      }
    ]
  )


def _c4_split(split: str) -> Split:
  return Split(
    [
      {
        f'{root}c4-{split}.*.json{packed}': TextJsonReader()
        for root in ('c4/**/', 'en/')
        for packed in ('', '.gz')
      }
    ]
  )


_SPAN_CORRUPTION = 'c4_v220_span_corruption'
_C4_SPLITS = {name: _c4_split(name) for name in ('train', 'validation')}

_LM1B_ROOTS = (
  'lm1b/',
  'lm1b/1-billion-word-language-modeling-benchmark-r13output/',
  '1-billion-word-language-modeling-benchmark-r13output/',
)


def _lm1b_split(official: str, keep: Callable[[str], bool]) -> Split:
  # Other tokenised news, one sentence per line, can stand in for LM1B; some of
  # the lines are held out.
  return Split(
    [{root + official: SentenceReader()} for root in _LM1B_ROOTS]
    + [{'corpus/news_sentences/*.txt': SentenceReader(keep)}]
  )


TASKS = {
  'c4': adopt(_SPAN_CORRUPTION, _C4_SPLITS, 'c4_span_corruption'),
  'text': define(
    'text_span_corruption',
    {'train': _corpus_split(kept_in), 'validation': _corpus_split(held_out)},
    preprocessors=seqio.TaskRegistry.get(_SPAN_CORRUPTION).preprocessors,
  ),
  'lm1b': define(
    'lm1b',
    {
      'train': _lm1b_split(
        'training-monolingual.tokenized.shuffled/news.en-*', kept_in
      ),
      'test': _lm1b_split(
        'heldout-monolingual.tokenized.shuffled/news.en.heldout-*', held_out
      ),
    },
    preprocessors=[
      functools.partial(seqio.preprocessors.rekey, key_map={'targets': 'text'}),
      *TOKENIZE,
    ],
    tfds_name='lm1b:1.1.0',
    output_features={'targets': OUTPUT_FEATURES['targets']},
  ),
}
# Also under the name that T5's has, with its version.
adopt(_SPAN_CORRUPTION, _C4_SPLITS)
