"""The published numbers, from the data file paper_tables.json.

It has the tables of the Synthesizer paper (arXiv 2005.00743): version 3, and
what only version 1 has; and of a later study by some of its authors (arXiv
2102.11972, "study"). Cells are as printed; a column names our number, or a
number for each part of a cell. The fields of `kinds.ModelKind` say which
models a row stands for. One that is missing is not stated, and matches any
model.
"""

import collections
import json
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from synth_mtf.cost import Cost, cost_of_files
from synth_mtf.results import kinds, printing

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

  `about` has the fields of the file, those of a `ModelKind` among them.
  """

  about: Mapping[str, Any]
  numbers: dict[str, float]

  def differences(self, kind: kinds.ModelKind) -> list[str]:
    """Describes the fields in which a model differs from the row's."""
    differences = []
    for field, ours in kind._asdict().items():
      theirs = self.about.get(field)
      if theirs not in (None, ours):
        differences.append(
          f'{field} {ours or "none"} instead of {theirs or "none"}'
        )
    return differences


def _rows() -> Iterator[Row]:
  for table in TABLES:
    speed_of_t5 = None
    for row in table['rows']:
      numbers = {}
      for names, cell in zip(
        table['columns'].values(), row['cells'], strict=True
      ):
        numbers.update(_numbers(names, cell))
      if 'Steps/s' in numbers:
        if speed_of_t5 is None:  # T5 has the first row
          speed_of_t5 = numbers['Steps/s']
        numbers['x T5'] = numbers['Steps/s'] / speed_of_t5
      about = {'source': PAPER, 'mixing': '', **table, **row}
      about['size'] = SIZES.get(about.get('size'))
      yield Row(about, numbers)


def _numbers(names: str, cell: str) -> dict[str, float]:
  """Parses a cell, such as '41.2/-' or '67M', with a name for each part.

  If it is unknown which of our numbers a part is, its name is `one or another`,
  and it stands next to each.
  """
  numbers = {}
  for name, part in zip(names.split(', '), cell.split('/'), strict=True):
    if part == '-':
      continue
    scale = 1e6 if part.endswith('M') else 1.0
    number = float(part.removesuffix('M')) * scale
    numbers.update(dict.fromkeys(name.split(' or '), number))
  return numbers


ROWS = tuple(_rows())


class Published(NamedTuple):
  """The published numbers of a model by name, or why there are none."""

  numbers: dict[str, float]
  reason: str = ''


def published(
  source: str, kind: kinds.ModelKind, names: Collection[str]
) -> Published:
  """Returns the published numbers of a model.

  Each number is that of the first row that has it.
  """
  rows = [
    row
    for row in ROWS
    if row.about['source'] == source
    and not row.numbers.keys().isdisjoint(names)
  ]
  fitting = [row.numbers for row in rows if not row.differences(kind)]
  if not fitting:
    none = f'{source} has no {kind.functions} in these columns'
    return Published({}, _nearest(rows, kind, names) or none)
  first = collections.ChainMap(*fitting)
  return Published({name: first[name] for name in names if name in first})


def _nearest(
  rows: Iterable[Row], kind: kinds.ModelKind, names: Collection[str]
) -> str:
  """Describes how a model differs from the nearest row with its functions.

  The row is from the table with the most of these columns. Returns '' if no row
  has the functions.
  """
  candidates = []
  for row in rows:
    differences = row.differences(kind)
    functions = row.about['functions'] or ''
    # Such as "V, of Vaswani et al.", whose second part no model states.
    is_qualified = functions.startswith(f'{kind.functions}, ')
    if is_qualified or not differences[0].startswith('functions'):
      shared = len(row.numbers.keys() & {*names})
      candidates.append((-shared, len(differences), ', '.join(differences)))
  if not candidates:
    return ''
  *_, description = min(candidates)
  return description


def costs(
  title: str,
  begin: Callable[[str], object] = lambda _row: None,
  count: Callable[..., Cost] = cost_of_files,
) -> str:
  """Returns a text table of a table's counts, and reasons for differences.

  Products are multiples of those of the first row that has a model.

  Args:
    title: that of the published table.
    begin: called with the name of each row before its model is counted.
    count: called as `cost_of_files` is.
  """
  headers = ['', 'trained', 'printed', 'difference', 'products', 'printed']
  rows = [row for row in ROWS if row.about['title'] == title]
  cells = []
  notes = []
  first = None
  for row in rows:
    about = row.about
    printed = row.numbers['Params'] / 1e6
    trained, difference, products, printed_products = '-', '-', '-', '-'
    if 'variant' in about:
      begin(about['row'])
      cost = _cost(about, count)
      tflops = row.numbers.get('TFLOPS', 0.0)
      if first is None:
        first = cost.flops, tflops
      trained = f'{cost.trained / 1e6:.1f} M'
      difference = f'{cost.trained / 1e6 - printed:+.1f} M'
      products = f'{cost.flops / first[0]:.2f}'
      if tflops:
        printed_products = f'{tflops / first[1]:.2f}'
    cells.append(
      [
        about['row'],
        trained,
        f'{printed:.0f} M',
        difference,
        products,
        printed_products,
      ]
    )
    if 'off' in about:
      notes.append(f'  {about["row"]}: {about["off"]}.')
  notes.append(f'  {rows[0].about["note"]}.')
  return '\n'.join([title, printing.columns(headers, cells), *notes])


def _cost(about: Mapping[str, Any], count: Callable[..., Cost]) -> Cost:
  """Counts the cost of a row's model."""
  settings = about['costs']
  files = [name.replace('*', about['variant']) for name in settings['files']]
  bindings = settings.get('bindings', about.get('bindings', ()))
  return count(
    files,
    settings['lengths'],
    bindings,
    vocab_size=settings['vocab_size'],
  )
