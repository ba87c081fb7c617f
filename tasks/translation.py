"""WMT translation from parallel text: line i of one file translates line i.

A pair is in a folder below `parallel/` whose name starts with the task's year
and languages, such as `wmt14_en_de` or `wmt14_en_de_tok`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from typing_extensions import override

from synth_mtf.tasks.files.formats import TEXT, Example, Reader, line_text
from synth_mtf.tasks.files.rows import Position, Record, RowError
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.files.streams import ParallelStream, line_number
from synth_mtf.tasks.registering import adopt


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
  def blemish(self, record: Record) -> None:
    return None  # a mark or a carriage return is not part of a sentence

  @override
  def parse(
    self, record: Record, number: int, header: None
  ) -> Sequence[Example]:
    source, target = record.data.split(b'\n', 1)
    return [
      {
        self._source: _sentence(source, number, f'.{self._source}'),
        self._target: _sentence(target, number, f'.{self._target}'),
      }
    ]


def _sentence(line: bytes, number: int, suffix: str) -> str:
  try:
    # The number stands in for the offset: only the first line may have a mark.
    return line_text(Record(line, number))
  except RowError as error:
    raise error.at(f'file {suffix}') from None


def _split(
  folder: str, source: str, target: str, names: Sequence[str], optional: bool
) -> Split:
  reader = ParallelReader(source, target)
  return Split.of(
    [f'parallel/{folder}*/{name}.{source}' for name in names],
    reader,
    optional,
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
