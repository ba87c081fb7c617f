"""WMT translation from pairs of text files that are aligned line by line.

A pair is in a folder below `parallel/` whose name starts with the task's year
and languages, such as `wmt14_en_de`, `wmt14_en_de_tok` or `wmt_t2t_en_de`.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import seqio

from synth_mtf.paths import PREFIX
from synth_mtf.rows import formats
from synth_mtf.storage import filesystem
from synth_mtf.tasks.files.source import Split
from synth_mtf.tasks.registering import adopt, rate_by_rows


@dataclasses.dataclass(eq=False)
class ParallelReader(formats.Reader):
  """Reads two aligned files whose names differ only in the language suffix."""

  source: str
  target: str

  def __post_init__(self) -> None:
    self.schema = dict.fromkeys((self.source, self.target), formats.TEXT)

  def files(self, path: str) -> list[str]:
    return [path, path.removesuffix(self.source) + self.target]

  def place(self, path: str, start: Any, error: formats.RowError) -> str:
    return super().place(path, start[0] if start else 0, error)

  def read_header(self, path: str) -> tuple[formats.Record, None]:
    """Refuses files with markup, such as the SGML of WMT's test sets."""
    for file in self.files(path):
      with filesystem.reading(file) as stream, formats.fault_at(file, 1):
        line = formats.decode(
          next(formats.lines(stream), b'').removeprefix(formats.BOM)
        )
        formats.expect(
          not formats.MARKUP.match(line),
          f'SGML or XML: {formats.quote(line.strip())}',
          'plain text, one sentence per line: extract the sentences first '
          '(of SGML, those in <seg>), for both languages in the same order',
        )
    return formats.Record(b'', 0), None

  def records(
    self, path: str, start: Any = 0, end: Any = None
  ) -> Iterator[formats.Record]:
    source_path, target_path = self.files(path)
    source_start, target_start = start or (0, 0)
    source_end, target_end = end or (None, None)
    pairs = itertools.zip_longest(
      super().records(source_path, source_start, source_end),
      super().records(target_path, target_start, target_end),
      fillvalue=formats.Record(b'', 0),
    )
    for source, target in pairs:
      lines = [source.data, target.data]
      yield formats.Record(lines, (source_start, target_start))
      if not all(lines):
        return  # one file is longer, which `parse` reports
      source_start += len(source.data)
      target_start += len(target.data)

  def parse(self, record: formats.Record) -> formats.Items:
    if not all(record.data):
      longer = self.source if record.data[0] else self.target
      raise formats.RowError(
        f'a line that only the .{longer} file has',
        'the same number of lines in both files',
      )
    ended = [line.endswith(b'\n') for line in record.data]
    if any(ended) and not all(ended):
      cut = self.target if ended[0] else self.source
      raise formats.RowError(
        f'a last line without a line end in the .{cut} file alone, which may '
        'be cut off',
        'both files whole',
      )
    lines = [line.rstrip(b'\n') for line in record.data]
    if not all(lines):
      raise formats.Oddity('a pair with an empty side', formats.LEFT_OUT)
    example = {}
    for language, line in zip(self.schema, lines, strict=True):
      try:
        example[language] = formats.decode(line)
      except formats.RowError as error:
        error.args = (f'file .{language}: {error}',)
        raise
    yield example


def _adopt(t5_name: str, development: str, test: str) -> str:
  wmt, pair, _ = t5_name.rsplit('_', 2)
  source, target = pair[:2], pair[2:]
  folder = f'parallel/{wmt}_{source}_{target}'

  def split(*names: str, optional: bool = False) -> Split:
    patterns = []
    # Plain names come first: differently processed versions of the text often
    # are next to it, or in a folder with a longer name.
    for name in names:
      patterns.append(f'{folder}/{name}.{source}')
      patterns.append(f'{folder}*/{name}.{source}')
    return Split.of(patterns, ParallelReader(source, target), optional)

  return adopt(
    t5_name,
    {
      # WMT's own names of parts, as in europarl-v7.de-en.en, come last.
      'train': split('train', 'train*', f'*.{target}-{source}'),
      'validation': split('val', 'valid', 'validation', 'dev', development),
      'test': split('test', test, optional=True),
    },
  )


# The heads study trains on all pairs at once. As in T5, the rate of each is its
# number of examples, capped at `rate_num_examples.maximum`.
seqio.MixtureRegistry.add(
  f'{PREFIX}translation',
  [
    _adopt('wmt14_ende_v003', 'newstest2013', 'newstest2014'),
    _adopt('wmt14_enfr_v003', 'newstest2013', 'newstest2014'),
    _adopt('wmt16_enro_v003', 'newsdev2016', 'newstest2016'),
  ],
  default_rate=rate_by_rows,
)
# WMT'14 with the texts that Tensor2Tensor trains on.
_adopt('wmt_t2t_ende_v003', 'newstest2013', 'newstest2014')
