"""The published numbers, from the data file paper_tables.json.

It has the tables of the Synthesizer paper (arXiv 2005.00743): version 3, and
what only version 1 has; and of a later study by some of its authors (arXiv
2102.11972, "study"). Cells are as printed; a column names our number, or a
number for each part of a cell. The fields of `labels.ModelKind` say which
models a row stands for. One that is missing is not stated, and matches any
model.
"""

import collections
import json
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from synth_mtf.cost import cost_of_files
from synth_mtf.results import labels, printing

PAPER, STUDY = 'the paper', 'the study'
ARXIV = {PAPER: '2005.00743', STUDY: '2102.11972'}
# Tasks that our columns accept in place of a published table's data.
OTHER_DATA = ('text_span_corruption', 'wmt15_enfr_v003')
_DATA = json.loads(
  pathlib.Path(__file__).with_name('paper_tables.json').read_text('utf-8')
)
TABLES, SIZES = _DATA['tables'], _DATA['sizes']


class Row(NamedTuple):
  """A row of a table: for which models it stands, and its numbers.

  `about` has the fields of the file, those of a `Kind` among them.
  """

  about: Mapping[str, Any]
  numbers: dict[str, float]

  def differences(self, kind: labels.ModelKind) -> list[str]:
    """Describes the fields in which a model differs from the row's."""
    return [
      f'{field} {ours or "none"} instead of {theirs or "none"}'
      for field, ours in kind._asdict().items()
      for theirs in [self.about.get(field)]
      if theirs not in (None, ours)
    ]


def _rows() -> Iterator[Row]:
  for table in TABLES:
    speed = None
    for row in table['rows']:
      numbers = {
        name: float(part.rstrip('M')) * (1e6 if part.endswith('M') else 1)
        for names, cell in zip(
          table['columns'].values(), row['cells'], strict=True
        )
        for name, part in zip(names.split(', '), cell.split('/'), strict=True)
        if part != '-'
      }
      if 'Steps/s' in numbers:
        speed = speed or numbers['Steps/s']  # the first row's, which is T5's
        numbers['x T5'] = numbers['Steps/s'] / speed
      about = {'source': PAPER, 'mixing': '', **table, **row}
      about['size'] = SIZES.get(about.get('size'))
      yield Row(about, numbers)


ROWS = tuple(_rows())


def figures(
  source: str, kind: labels.ModelKind, names: Collection[str]
) -> tuple[dict[str, float], str]:
  """Returns the published numbers of a model, or why there are none.

  Each number is that of the first row that has it.
  """
  rows = [
    (row.differences(kind), row.numbers)
    for row in ROWS
    if row.about['source'] == source
    and not row.numbers.keys().isdisjoint(names)
  ]
  fitting = [numbers for differences, numbers in rows if not differences]
  if fitting:
    found = collections.ChainMap(*fitting)
    return {name: found[name] for name in names if name in found}, ''
  same = [
    (-len(numbers.keys() & {*names}), len(differences), ', '.join(differences))
    for differences, numbers in rows
    if not differences[0].startswith('functions')
    or f'of {kind.functions}, ' in differences[0]  # and more that is unknown
  ]
  none = f'{source} has no {kind.functions} in these columns'
  # The nearest row, from the table with the most of these columns.
  *_, nearest = min(same, default=(none,))
  return {}, nearest


def costs(title: str) -> str:
  """Returns a text table of a table's counts, and reasons for differences.

  Products are multiples of those of the first row that has a model.
  """
  cells: list[list[str]] = []
  notes: list[str] = []
  first = None
  for row in (row for row in ROWS if row.about['title'] == title):
    about, printed = row.about, row.numbers['Params'] / 1e6
    counted = ['-', '-', '-', '-']
    if 'variant' in about:
      made = {'bindings': about.get('bindings', ()), **about['costs']}
      files = [name.replace('*', about['variant']) for name in made['files']]
      cost = cost_of_files(**{**made, 'files': files})
      theirs = row.numbers.get('TFLOPS', 0.0)
      first = first or (cost.flops, theirs)
      trained = cost.trained / 1e6
      counted = [
        f'{trained:.1f} M',
        f'{trained - printed:+.1f} M',
        f'{cost.flops / first[0]:.2f}',
        f'{theirs / first[1]:.2f}' if theirs else '-',
      ]
    cells.append([about['row'], counted[0], f'{printed:.0f} M', *counted[1:]])
    if 'off' in about:
      notes.append(f'  {about["row"]}: {about["off"]}.')
  headers = ['', 'trained', 'printed', 'difference', 'products', 'printed']
  notes.append(f'  {row.about["note"]}.')
  return '\n'.join([title, printing.plain(headers, cells, 'lrrrrr'), *notes])
