"""Span corruption, T5's pretraining: on C4, or on any folder of text.

15 % of the tokens are noise in spans of 3 on average; each span becomes one
sentinel of the inputs, and the targets are the spans behind their sentinels
(arXiv 1910.10683, section 3.3). 512 inputs then need 114 targets.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

import seqio
from typing_extensions import override

from synth_mtf.tasks._files import ByteStream, Record, decode
from synth_mtf.tasks._readers import (
  BOM,
  TEXT,
  Example,
  Reader,
  line_text,
  parse_json_object,
)
from synth_mtf.tasks._sources import Split, TwoSources
from synth_mtf.tasks._tasks import PREFIX, adopt
from synth_mtf.tasks._vocabulary import OUTPUT_FEATURES

# One text in so many is held out of a folder that has no validation files.
HOLD_OUT = 50
_PASSAGE_BYTES = 4096


def _keep_all(text: str) -> bool:
  del text
  return True


def held_out(text: str) -> bool:
  """Whether a text belongs to the validation split.

  Decided by the text itself, so that neither the order of the files nor the
  number of hosts changes it, and a repeated text is never on both sides.
  """
  return zlib.crc32(text.encode('utf-8')) % HOLD_OUT == 0


def kept_in(text: str) -> bool:
  """Whether a text belongs to the training split."""
  return not held_out(text)


class _CorpusReader(Reader):
  """Text of which nothing but the text itself is used.

  Rows stream: a file is not read before its first use. A mark or a carriage
  return is no part of the text.
  """

  schema = {'text': TEXT}
  scanned = False

  def __init__(self, keep: Callable[[str], bool] = _keep_all):
    self._keep = keep

  @property
  @override
  def key(self) -> str:
    return f'{type(self).__name__}/{self._keep.__name__}/{HOLD_OUT}'

  @override
  def blemish(self, record: Record) -> None:
    return None

  def kept(self, text: str) -> Sequence[Example]:
    """Returns the example of a text, if it has one in this split."""
    return [{'text': text}] if text.strip() and self._keep(text) else []


class PassageReader(_CorpusReader):
  """Plain text: lines up to an empty one, or some 4 kB of lines, a row.

  Blocks of a megabyte are read on their own, so that a passage ends there too.
  """

  @override
  def records(
    self, stream: ByteStream, end: int | None = None
  ) -> Iterator[Record]:
    start, lines, size = stream.offset, [], 0
    while end is None or stream.offset < end:
      line = stream.readline()
      if line.strip():
        lines.append(line)
        size += len(line)
      if lines and (not line.strip() or size >= _PASSAGE_BYTES):
        yield Record(b''.join(lines), start)
        lines, size = [], 0
      if not line:
        return
      if not lines:
        start = stream.offset
    if lines:
      yield Record(b''.join(lines), start)

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    data = record.data.replace(b'\r', b'')
    return self.kept(
      decode(data[len(BOM) :] if data.startswith(BOM) else data).strip()
    )


class TextJsonReader(_CorpusReader):
  """JSON lines with the text under "text", as in C4's own files."""

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    return self.kept(parse_json_object(line_text(record)).text('text'))


def _corpus_split(keep: Callable[[str], bool]) -> Split:
  passages, json_lines = PassageReader(keep), TextJsonReader(keep)
  readers = {'txt': passages, 'jsonl': json_lines, 'json': json_lines}
  return Split(
    {
      f'corpus/**/*.{suffix}{packed}': reader
      for suffix, reader in readers.items()
      for packed in ('', '.gz')
    }
  )


def _c4_split(split: str) -> Split:
  names = [f'c4-{split}.*.json', f'c4-{split}.*.json.gz']
  return Split(
    {
      f'{root}{n}': TextJsonReader()
      for root in ('c4/**/', 'en/')
      for n in names
    }
  )


_C4_FILES = {name: _c4_split(name) for name in ('train', 'validation')}

_NAME = PREFIX + 'text_span_corruption'
seqio.TaskRegistry.add(
  _NAME,
  source=TwoSources(
    _NAME,
    {'train': _corpus_split(kept_in), 'validation': _corpus_split(held_out)},
    tfds=None,
  ),
  preprocessors=seqio.TaskRegistry.get('c4_v220_span_corruption').preprocessors,
  output_features=OUTPUT_FEATURES,
  metric_fns=[],
)

TASKS = {
  'c4': adopt('c4_v220_span_corruption', _C4_FILES, 'c4_span_corruption'),
  'text': _NAME,
}
