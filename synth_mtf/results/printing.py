"""Formats tables: for a terminal, as Markdown, as LaTeX and as plain columns.

All commands print their tables with this module, even in a broken installation.
It therefore needs no TensorFlow, and imports tabulate lazily.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from typing import NamedTuple

from synth_mtf.escaping import Escaped, escaped

BEST = re.compile(r'\*\*(.*?)\*\*')


class Grid(NamedTuple):
  """A table of strings.

  Attributes:
    caption: printed above the table.
    headers: one per column; the first column names the rows.
    rows: from top to bottom; `**` encloses the best numbers.
    notes: printed below the table, one paragraph each.
  """

  caption: str
  headers: Sequence[str]
  rows: Sequence[Sequence[str]]
  notes: Sequence[str] = ()


def text(grid: Grid, form: str | None = None) -> str:
  """Returns a table in a format: 'terminal', 'markdown' or 'latex'.

  The default is 'terminal' if stdout is a terminal, else 'markdown'.
  """
  is_terminal = sys.stdout.isatty()
  if form is None:
    form = 'terminal' if is_terminal else 'markdown'
  # Names from files may have several lines, and control characters.
  grid = Grid(
    caption=_one_line(grid.caption),
    headers=[_one_line(header) for header in grid.headers],
    rows=[[_one_line(cell) for cell in row] for row in grid.rows],
    notes=[_one_line(note) for note in grid.notes],
  )
  if form == 'markdown':
    return markdown(grid)
  if form == 'latex':
    return latex(grid)
  width = shutil.get_terminal_size().columns
  return Escaped(terminal(grid, width, bold=is_terminal))


def without_bold(grid: Grid) -> Grid:
  """Returns a table whose best numbers look like the others."""
  rows = [[BEST.sub(r'\1', cell) for cell in row] for row in grid.rows]
  return grid._replace(rows=rows)


def _one_line(paragraph: str) -> str:
  return escaped(' '.join(paragraph.splitlines()))


def markdown(grid: Grid) -> str:
  """Returns a Markdown table, aligned so that it also reads well as text."""
  headers, *rows = (
    [cell.replace('|', '\\|') for cell in row]
    for row in (grid.headers, *grid.rows)
  )
  return '\n\n'.join([grid.caption, _table(headers, rows, 'pipe'), *grid.notes])


def code(name: object) -> str:
  """Returns a name as code in Markdown, where it makes no links or headings."""
  text = _one_line(str(name)).replace('`', "'").replace('|', '\\u007c')
  return f'`{text}`'


def latex(grid: Grid) -> str:
  """Returns a LaTeX table, which requires the booktabs package."""
  import tabulate

  comments = [f'% {note}' for note in grid.notes]
  caption = grid.caption.translate(str.maketrans(tabulate.LATEX_ESCAPE_RULES))
  table = _table(grid.headers, grid.rows, 'latex_booktabs')
  table = table.replace('±', r'$\pm$')
  table = BEST.sub(r'\\textbf{\1}', table)
  return '\n'.join(
    [
      *comments,
      r'\begin{table}',
      r'\centering',
      rf'\caption{{{caption}}}',
      table,
      r'\end{table}',
    ]
  )


def terminal(grid: Grid, width: int, bold: bool = True) -> str:
  """Returns a table for a terminal.

  A table that is too wide is split into parts that each repeat the labels.
  """
  best = '\x1b[1m\\1\x1b[0m' if bold else r'\1'
  rows = [
    [label, *(BEST.sub(best, cell) for cell in cells)]
    for label, *cells in grid.rows
  ]
  labels, *columns = zip(grid.headers, *rows, strict=True)
  tables = []
  part = [labels]
  for column in columns:
    is_too_wide = _width(_side_by_side([*part, column])) > width
    if is_too_wide and len(part) > 1:
      tables.append(_side_by_side(part))
      part = [labels]
    part.append(column)
  tables.append(_side_by_side(part))
  caption, *notes = (
    textwrap.fill(paragraph, width) for paragraph in (grid.caption, *grid.notes)
  )
  return '\n'.join([caption, *(f'\n{table}\n' for table in tables), *notes])


def _side_by_side(columns: Sequence[Sequence[str]]) -> str:
  headers, *rows = zip(*columns, strict=True)
  return _table(headers, rows, 'simple')


def _width(table: str) -> int:
  """The width of a table, which is that of the rule below its headers."""
  return len(table.split('\n')[1])


def columns(
  headers: Sequence[str],
  rows: Sequence[Sequence[str]],
  left: Collection[int] = (0,),
) -> str:
  """Returns a table without rules; `left` are the columns of text."""
  # As a row like the others: tabulate would make columns wider than headers.
  return _table((), [headers, *rows], 'plain', left)


def count(number: int | None) -> str:
  """Returns a number with thousands separators, or '?' if it is unknown."""
  return '?' if number is None else f'{number:,}'


def _table(
  headers: Sequence[str],
  rows: Sequence[Sequence[str]],
  form: str,
  left: Collection[int] = (0,),
) -> str:
  """Formats a table; columns are aligned right unless they are in `left`."""
  import tabulate

  number = len(headers or rows[0])
  return tabulate.tabulate(
    rows,
    headers,
    tablefmt=form,
    colalign=['left' if n in left else 'right' for n in range(number)],
    disable_numparse=True,
  )
