"""Formats tables for a terminal, as Markdown and as LaTeX.

All commands print their tables with this module, even in a broken installation.
It therefore needs no TensorFlow, and imports tabulate lazily.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

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
  grid = Grid(*map(_one_line, grid))
  if form == 'terminal' or (form is None and sys.stdout.isatty()):
    width = shutil.get_terminal_size().columns
    return terminal(grid, width, bold=sys.stdout.isatty())
  return latex(grid) if form == 'latex' else markdown(grid)


def _one_line(part: Any) -> Any:
  """Joins lines: names from files may have several."""
  if isinstance(part, str):
    return ' '.join(part.splitlines())
  return [_one_line(one) for one in part]


def markdown(grid: Grid) -> str:
  """Returns a Markdown table, aligned so that it also reads well as text."""
  rows = [
    [cell.replace('|', '\\|') for cell in row]
    for row in [grid.headers, *grid.rows]
  ]
  table = _tabulated(rows, 'pipe')
  return '\n\n'.join([grid.caption, table, *grid.notes])


def latex(grid: Grid) -> str:
  """Returns a LaTeX table, which requires the booktabs package."""
  import tabulate

  caption = ''.join(
    tabulate.LATEX_ESCAPE_RULES.get(char, char) for char in grid.caption
  )
  table = _tabulated([grid.headers, *grid.rows], 'latex_booktabs')
  return '\n'.join(
    [
      *(f'% {note}' for note in grid.notes),
      r'\begin{table}',
      r'\centering',
      rf'\caption{{{caption}}}',
      BEST.sub(r'\\textbf{\1}', table.replace('±', r'$\pm$')),
      r'\end{table}',
    ]
  )


def terminal(grid: Grid, width: int, bold: bool = True) -> str:
  """Returns a table for a terminal.

  A table that is too wide is split into parts that each repeat the labels.
  """
  best = '\x1b[1m\\1\x1b[0m' if bold else r'\1'
  labels, *columns = (
    [BEST.sub(best, cell) for cell in column]
    for column in zip(grid.headers, *grid.rows, strict=True)
  )
  parts = [[labels]]
  for column in columns:
    table = _tabulated(list(zip(*parts[-1], column, strict=True)), 'simple')
    rule = table.split('\n')[1]
    if len(parts[-1]) > 1 and len(rule) > width:
      parts.append([labels])
    parts[-1].append(column)
  tables = (
    _tabulated(list(zip(*part, strict=True)), 'simple') for part in parts
  )
  caption, *notes = (
    textwrap.fill(paragraph, width) for paragraph in (grid.caption, *grid.notes)
  )
  return '\n'.join([caption, *(f'\n{table}\n' for table in tables), *notes])


def plain(
  headers: Sequence[str], rows: Sequence[Sequence[str]], align: str
) -> str:
  """Returns columns without rules; `align` has one 'l' or 'r' per column."""
  widths = [
    max(map(len, column)) for column in zip(headers, *rows, strict=True)
  ]
  signed = [
    -w if side == 'r' else w for w, side in zip(widths, align, strict=True)
  ]
  return '\n'.join(line(row, signed) for row in [headers, *rows])


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
  """Returns cells side by side; a negative width right-aligns its cell."""
  return '  '.join(
    cell.rjust(-width) if width < 0 else cell.ljust(width)
    for cell, width in zip(cells, widths, strict=True)
  ).rstrip()


def count(number: int | None) -> str:
  """Returns a number with thousands separators, or '?' if it is unknown."""
  return '?' if number is None else f'{number:,}'


def _tabulated(cells: Sequence[Sequence[str]], form: str) -> str:
  """Formats cells with labels aligned left and numbers aligned right."""
  import tabulate

  return tabulate.tabulate(
    cells[1:],
    cells[0],
    tablefmt=form,
    colalign=['left', *['right'] * (len(cells[0]) - 1)],
    disable_numparse=True,
  )
