"""Readers of plain text, which use nothing but the text itself."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

from typing_extensions import override

from synth_mtf.tasks.files.formats import (
  BOM,
  TEXT,
  Example,
  Reader,
  line_text,
  parse_json_object,
)
from synth_mtf.tasks.files.rows import Record, decode
from synth_mtf.tasks.files.streams import ByteStream

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
  """Text, and nothing but the text itself.

  Rows are streamed: a file is not read before its first use. A byte order mark
  or a carriage return is not part of the text.
  """

  schema = {'text': TEXT}
  scanned = False

  def __init__(self, keep: Callable[[str], bool] = keep_all) -> None:
    self._keep = keep

  @property
  @override
  def key(self) -> str:
    return f'{type(self).__name__}/{self._keep.__name__}/{HOLD_OUT}'

  @override
  def oddity(self, record: Record) -> None:
    return None

  def kept(self, text: str) -> Sequence[Example]:
    """Returns the example of a text, if it has one in this split."""
    return [{'text': text}] if text.strip() and self._keep(text) else []


class PassageReader(CorpusReader):
  """Plain text: a row is the lines up to an empty one, or some 4 kB of lines.

  Blocks of a megabyte are read separately, so that a passage also ends there.
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
    return self.kept(plain_text(record))


class SentenceReader(CorpusReader):
  """Plain text: each line is a row."""

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    return self.kept(plain_text(record))


class TextJsonReader(CorpusReader):
  """JSON lines with the text under "text", as in C4's own files."""

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    return self.kept(parse_json_object(line_text(record)).text('text'))


def plain_text(record: Record) -> str:
  """Returns the text without what surrounds it."""
  data = record.data[len(BOM) :] if _is_marked(record) else record.data
  return decode(data.replace(b'\r', b'')).strip()


def _is_marked(record: Record) -> bool:
  return record.offset == 0 and record.data.startswith(BOM)
