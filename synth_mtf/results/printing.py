"""Prints tables: on a terminal, as Markdown and as LaTeX.

All commands print their tables with this module. They import it even where the
installation is broken: it needs no TensorFlow, and imports tabulate only where
it is used.
"""

import dataclasses
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Optional

_BOLD = '\x1b[1m{}\x1b[0m'
_LATEX = {
  '\\': r'\textbackslash{}',
  '±': r'$\pm$',
  **{char: f'\\{char}' for char in '&%$#_{}'},
  '~': r'\textasciitilde{}',
  '^': r'\textasciicircum{}',
}


class Piece(NamedTuple):
  """A number in a cell; `best` if no other row has a better one."""

  text: str
  best: bool = False


class Row(NamedTuple):
  """The name of a row, and its cells, each of several numbers or one."""

  label: str
  cells: Sequence[Sequence[Piece]]


@dataclasses.dataclass(frozen=True)
class Grid:
  """A table whose cells are texts.

  Attributes:
    caption: printed above it.
    headers: of its columns, without the first, which has the labels.
    rows: from top to bottom.
    notes: printed below it, a paragraph each.
    label_header: of the first column.
  """

  caption: str
  headers: Sequence[str]
  rows: Sequence[Row]
  notes: Sequence[str] = ()
  label_header: str = 'Model'


def text(grid: Grid, form: Optional[str] = None) -> str:
  """Returns a table in a format: 'terminal', 'markdown' or 'latex'.

  The default is 'terminal' if the output goes to one, else 'markdown'.
  """
  if form == 'terminal' or (form is None and sys.stdout.isatty()):
    width = shutil.get_terminal_size().columns
    return terminal(grid, width, bold=sys.stdout.isatty())
  return latex(grid) if form == 'latex' else markdown(grid)


def plain(
  headers: Sequence[str], rows: Sequence[Sequence[str]], align: str
) -> str:
  """Returns aligned columns without rules.

  Args:
    headers: a name for each column.
    rows: texts.
    align: 'l' or 'r' for each column.
  """
  return _tabulated([headers, *rows], align, 'plain')


def markdown(grid: Grid) -> str:
  """Returns a Markdown table, aligned so that it reads well as text, too."""
  cells = _cells(grid, '**{}**')
  table = _tabulated(cells, _numbers_right(cells), 'pipe')
  return '\n\n'.join([grid.caption, table, *grid.notes])


def latex(grid: Grid) -> str:
  """Returns a LaTeX table, which needs the package booktabs."""
  cells = _cells(grid, r'\textbf{{{}}}', _escaped)
  header, *rows = (' & '.join(row) + r' \\' for row in cells)
  return '\n'.join(
    [
      *(f'% {note}' for note in grid.notes),
      r'\begin{table}',
      r'\centering',
      rf'\caption{{{_escaped(grid.caption)}}}',
      rf'\begin{{tabular}}{{{_numbers_right(cells)}}}',
      r'\toprule',
      header,
      r'\midrule',
      *rows,
      r'\bottomrule',
      r'\end{tabular}',
      r'\end{table}',
    ]
  )


def terminal(grid: Grid, width: int, bold: bool = True) -> str:
  """Returns a table for a terminal.

  One that is too wide is split; each part begins with the labels.

  Args:
    grid: the table.
    width: of the terminal, in characters; labels get half of it at most.
    bold: whether the best numbers are bold.
  """
  cells = _cells(grid, _BOLD if bold else '{}')
  for row in cells:
    if len(row[0]) > width // 2:
      row[0] = row[0][: width // 2 - 1] + '…'
  tables = [
    _tabulated(part, _numbers_right(part), 'simple')
    for part in _split(cells, width)
  ]
  paragraphs = (grid.caption, *grid.notes)
  caption, *notes = (textwrap.fill(one, width) for one in paragraphs)
  return '\n'.join([caption, *(f'\n{table}\n' for table in tables), *notes])


def _cells(
  grid: Grid, best: str, escaped: Callable[[str], str] = str
) -> list[list[str]]:
  """The texts of a table, header first, with the best numbers marked."""
  return [
    list(map(escaped, [grid.label_header, *grid.headers])),
    *(
      [
        escaped(row.label),
        *(
          '/'.join(
            best.format(escaped(piece.text))
            if piece.best
            else escaped(piece.text)
            for piece in cell
          )
          for cell in row.cells
        ),
      ]
      for row in grid.rows
    ),
  ]


def _numbers_right(cells: Sequence[Sequence[str]]) -> str:
  return 'l' + 'r' * (len(cells[0]) - 1)


def _split(
  cells: Sequence[Sequence[str]], width: int
) -> Iterator[list[list[str]]]:
  """Yields the columns of each part that fits into a width."""
  part = [[row[0]] for row in cells]
  for column in range(1, len(cells[0])):
    wider = [[*left, row[column]] for left, row in zip(part, cells)]
    if len(part[0]) > 1 and _width(wider) > width:
      yield part
      wider = [[row[0], row[column]] for row in cells]
    part = wider
  yield part


def _width(cells: Sequence[Sequence[str]]) -> int:
  _, rule, *_ = _tabulated(cells, _numbers_right(cells), 'simple').split('\n')
  return len(rule)


def _tabulated(cells: Sequence[Sequence[str]], align: str, form: str) -> str:
  import tabulate

  sides = {'l': 'left', 'r': 'right'}
  return tabulate.tabulate(
    cells[1:],
    cells[0],
    tablefmt=form,
    colalign=[sides[side] for side in align],
    disable_numparse=True,
  )


def _escaped(text: str) -> str:
  return ''.join(_LATEX.get(char, char) for char in text)
