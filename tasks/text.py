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
import io
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import seqio

from synth_mtf.rows import formats
from synth_mtf.storage import filesystem
from synth_mtf.tasks import data_settings
from synth_mtf.tasks.files.source import FilesDataSource, Split, TwoSources
from synth_mtf.tasks.registering import TOKENIZE, adopt, define
from synth_mtf.tasks.vocabulary import OUTPUT_FEATURES

# One in this many texts is held out if a folder has no validation files.
HOLD_OUT = 50
_PASSAGE_BYTES = 4096
# Some files are one line: this much of it is read at a time.
_LINE_BYTES = 64 << 10
# The splits of a folder of text, and whether they are the texts held out.
_VALIDATION = {'train': False, 'validation': True}


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

  def records(
    self, path: str, start: int = 0, end: int | None = None
  ) -> Iterator[formats.Record]:
    """Yields the rows whose lines start between two offsets."""
    with filesystem.reading(path) as stream:
      if start:
        # It may be inside a line, which belongs to the part before.
        stream.seek(start - 1)
        start += len(next(self.lines(stream), b' ')) - 1
        stream.seek(start)
      if end is not None:
        data = stream.read(max(end - 1 - start, 0))
        if start < end:
          data += next(self.lines(stream), b'')
        stream = io.BytesIO(data)
      yield from self.split(stream, start)

  def lines(self, stream: Any) -> Iterator[bytes]:
    """Yields the rest of the line where a stream is, and all others."""
    return formats.lines(stream)

  def oddities(self, record: formats.Record) -> Iterator[formats.Oddity]:
    yield from super().oddities(record)
    begins = formats.MARKUP.match(record.unmarked[:80].decode(errors='replace'))
    if record.start == 0 and begins:
      yield formats.Oddity(
        f'SGML, XML or HTML: {formats.quote(begins[0].strip())}',
        'read as text, with its tags',
      )

  def parse(self, record: formats.Record) -> formats.Items:
    for text in self.texts(record):
      if self.reads(text):
        yield {'text': text}

  def reads(self, text: str) -> bool:
    """Whether a text is an example of this reader's split."""
    if self.validation is None:
      return True
    return bool(text.strip()) and held_out(text) == self.validation

  def texts(self, record: formats.Record) -> list[str]:
    """Returns the texts of a record."""
    lines = record.unmarked.splitlines()  # as TFDS: also at carriage returns
    return [formats.decode(line).strip() for line in lines]


class PassageReader(SentenceReader):
  """Reads plain text in passages, which end at an empty line or after 4 kB.

  A passage also ends after each megabyte of a file, since such parts are read
  separately, except in `.gz`, and after 64 kB of a line, at a space. A carriage
  return ends a line, too.
  """

  def split(self, stream: Any, start: int) -> Iterator[formats.Record]:
    def long_enough(data: bytes) -> bool:
      return len(data) >= _PASSAGE_BYTES

    return formats.paragraphs(self.lines(stream), start, long_enough)

  def lines(self, stream: Any) -> Iterator[bytes]:
    part = rest = b''
    while part := rest + stream.readline(_LINE_BYTES - len(rest)):
      end = len(part)
      if end == _LINE_BYTES and not part.endswith(b'\n'):
        end = _end_of_word(part)
      yield part[:end]
      rest = part[end:]

  def texts(self, record: formats.Record) -> list[str]:
    lines = record.unmarked.splitlines()
    return [formats.decode(b'\n'.join(lines)).strip()]


def _end_of_word(text: bytes) -> int:
  """Returns where to cut a text: after its last space, or else a character."""
  after_space = 1 + max(map(text.rfind, (b' ', b'\t', b'\r')))
  if after_space:
    return after_space
  for end in range(len(text) - 1, len(text) - 4, -1):
    if text[end] & 0xC0 != 0x80:  # the first byte of a character
      return end
  return len(text)  # it is not UTF-8


class TextJsonReader(SentenceReader):
  """Reads JSON lines with the text under "text", as in C4's own files.

  A user's own files may have blank lines.
  """

  def texts(self, record: formats.Record) -> list[str]:
    if self.validation is not None:
      formats.skip_blank(record)
    return [formats.json_row(record, {'text': str})['text']]


def _plain_or_gzip(*layouts: Mapping[str, formats.Reader]) -> Split:
  """Returns a split of these layouts, whose files may also end in `.gz`."""
  with_gzip = []
  for layout in layouts:
    gzipped = {f'{path}.gz': reader for path, reader in layout.items()}
    with_gzip.append({**layout, **gzipped})
  return Split(with_gzip)


def _text_split(folder: str, validation: bool) -> Split:
  """Returns a split of all text in a folder, which is '' or ends in '/'."""
  json_lines = TextJsonReader(validation)
  return _plain_or_gzip(
    {
      f'{folder}**/*.txt': PassageReader(validation),
      f'{folder}**/*.jsonl': json_lines,
      f'{folder}**/*.json': json_lines,
    }
  )


def _file_split(name: str, validation: bool) -> Split:
  """Returns a split of one file; without a known ending, it is plain text."""
  is_json = name.removesuffix('.gz').endswith(('.jsonl', '.json'))
  reader = TextJsonReader if is_json else PassageReader
  return Split.of([name], reader(validation))


@dataclasses.dataclass
class TextSource(TwoSources):
  """The file or folder that the setting `text` names, or else `corpus/`."""

  @property
  def official(self) -> FilesDataSource | None:
    text = data_settings.settings().text
    if text is None:
      return super().official
    named_by = data_settings.name_of('text')
    with filesystem.named_by(named_by):
      is_folder = filesystem.is_folder(text)
    folder, name = (text, '') if is_folder else os.path.split(text)
    splits = {}
    for split, validation in _VALIDATION.items():
      if is_folder:
        splits[split] = _text_split('', validation)
      else:
        splits[split] = _file_split(name, validation)
    return FilesDataSource(self.task_name, splits, folder or '.', named_by)


def _lm1b_split(official: str, validation: bool) -> Split:
  folder = '1-billion-word-language-modeling-benchmark-r13output/'
  roots = ('lm1b/', f'lm1b/{folder}', folder)
  layouts = [{root + official: SentenceReader()} for root in roots]
  # Other tokenized news, one sentence per line, can replace LM1B; some of its
  # lines are held out.
  layouts.append({'corpus/news_sentences/*.txt': SentenceReader(validation)})
  return Split(layouts)


def _c4_split(split: str) -> Split:
  file = f'c4-{split}.*.json'
  return _plain_or_gzip(
    # A folder `en` first: en.noclean and others may be next to it.
    {f'c4/**/en/{file}': TextJsonReader(), f'en/{file}': TextJsonReader()},
    {f'c4/**/{file}': TextJsonReader()},
  )


_SPAN_CORRUPTION = 'c4_v220_span_corruption'
_C4_SPLITS = {
  'train': _c4_split('train'),
  'validation': _c4_split('validation'),
}

C4 = adopt(_SPAN_CORRUPTION, _C4_SPLITS, 'c4_span_corruption')
adopt(_SPAN_CORRUPTION, _C4_SPLITS)  # also under T5's name
define(
  'text_span_corruption',
  {split: _text_split('corpus/', x) for split, x in _VALIDATION.items()},
  make_source=TextSource,
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
