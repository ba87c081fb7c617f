"""WMT translation from parallel text: line i of one file translates line i.

A pair is in a folder below `parallel/` whose name starts with the task's year
and languages, such as `wmt14_en_de` or `wmt14_en_de_tok`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import seqio
import t5.data
from typing_extensions import override

from synth_mtf.tasks.files.formats import BOM, TEXT, Example, Reader
from synth_mtf.tasks.files.rows import (
  Oddity,
  Position,
  Record,
  RowError,
  decode,
)
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.files.streams import ParallelStream, line_number
from synth_mtf.tasks.registering import PREFIX, adopt

_LEFT_OUT = 'left out, as TensorFlow Datasets leaves it out'


class ParallelReader(Reader):
  """Two files of sentences whose names differ in the language at the end."""

  def __init__(self, source: str, target: str) -> None:
    self._source = source
    self._target = target
    self.schema = {source: TEXT, target: TEXT}

  @property
  @override
  def key(self) -> str:
    return f'parallel/{self._source}-{self._target}'

  @override
  def open(self, path: str, offset: Position = 0) -> ParallelStream:
    source, target = self.files(path)
    return ParallelStream(source, target, offset or (0, 0))

  @override
  def files(self, path: str) -> list[str]:
    return [path, path[: -len(self._source)] + self._target]

  @override
  def place(self, path: str, offset: Position, line: int) -> str:
    return f'{path}:{line_number(path, offset[0]) + line}'

  @override
  def records(
    self, stream: ParallelStream, end: Position | None = None
  ) -> Iterator[Record]:
    while end is None or stream.offset < end:
      start = stream.offset
      source, target = stream.readlines()
      if bool(source) != bool(target):
        longer = self._source if source else self._target
        raise RowError(
          f'a line of the file .{longer} only',
          'as many lines in both files',
          line=-1 if source else 0,  # the stream has passed it
        )
      if not source:
        return
      yield Record(source.rstrip(b'\n') + b'\n' + target, start)

  @override
  def oddity(self, record: Record) -> Oddity | None:
    if b'\r' in record.data:
      return Oddity('a carriage return in a sentence')
    return None

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example | RowError]:
    source, target = record.data.split(b'\n', 1)
    target = target.rstrip(b'\n')
    if not source or not target:
      return [Oddity('a pair with an empty side', _LEFT_OUT)]
    example = {
      self._source: _sentence(source, f'.{self._source}'),
      self._target: _sentence(target, f'.{self._target}'),
    }
    marked = number == 0 and BOM in (source[:3], target[:3])
    return [example, *[Oddity('a byte order mark')] * marked]


def _sentence(line: bytes, suffix: str) -> str:
  try:
    return decode(line)
  except RowError as error:
    raise error.at(f'file {suffix}') from None


# Words of a name that say how a text was processed, and how far.
_SUBWORDS = re.compile(r'bpe\d*k?|spm?|sentencepiece|subword|wordpiece')
_PROCESSED = re.compile(
  r'a?tok(?:enized)?|clean(?:ed)?|lc|lower(?:cased?)?|tc|true(?:cased?)?'
  r'|norm(?:alized)?'
)


def rawest(paths: Sequence[str]) -> list[str]:
  """Returns the files without other forms of the same text.

  Of `train.en` and `train.tok.clean.bpe.32000.en`, or of the folders
  `wmt14_en_de` and `wmt14_en_de_tok`, the one with the fewest signs of
  processing is kept: T5's vocabulary wants raw text.
  """
  kept: dict[tuple[str, ...], tuple[int, str]] = {}
  for path in paths:
    folder, name = os.path.split(path)
    text, steps = _unprocessed(f'{os.path.basename(folder)}/{name}')
    known = kept.setdefault(text, (steps, path))
    kept[text] = min(known, (steps, path))
  return sorted(path for _, path in kept.values())


def _unprocessed(name: str) -> tuple[tuple[str, ...], int]:
  """Returns the words of a name that tell texts apart, and a sum of others."""
  words, steps, subwords = [], 0, False
  for word in re.split(r'[._-]', name.replace('/', './.')):
    if _PROCESSED.fullmatch(word):
      steps += 1
    elif _SUBWORDS.fullmatch(word):
      steps += len(name)  # more than any other steps
      subwords = True
    elif not (subwords and re.fullmatch(r'\d+k?', word)):
      words.append(word)
      subwords = False
  return tuple(words), steps


def _split(
  folder: str, source: str, target: str, names: Sequence[str], optional: bool
) -> Split:
  reader = ParallelReader(source, target)
  return Split.of(
    [f'parallel/{folder}*/{name}.{source}' for name in names],
    reader,
    optional,
    choose=rawest,
  )


def _splits(folder: str, source: str, target: str) -> dict[str, Split]:
  names = {
    'train': ('train*',),
    'validation': ('val', 'valid', 'validation', 'dev', 'newstest2013'),
    'test': ('test', 'newstest2014'),
  }
  if folder.startswith('wmt16'):
    names['validation'] = (*names['validation'][:-1], 'newsdev2016')
    names['test'] = ('test', 'newstest2016')
  return {
    split: _split(folder, source, target, files, optional=split == 'test')
    for split, files in names.items()
  }


TASKS = {
  'wmt14_ende': adopt('wmt14_ende_v003', _splits('wmt14_en_de', 'en', 'de')),
  'wmt14_enfr': adopt('wmt14_enfr_v003', _splits('wmt14_en_fr', 'en', 'fr')),
  'wmt16_enro': adopt('wmt16_enro_v003', _splits('wmt16_en_ro', 'en', 'ro')),
}

# The heads study trains on all pairs at once: each at the rate of its examples,
# up to `rate_num_examples.maximum`, as T5 mixes.
MIXTURES = {'translation': PREFIX + 'translation'}
seqio.MixtureRegistry.add(
  MIXTURES['translation'],
  list(TASKS.values()),
  default_rate=t5.data.rate_num_examples,
)
