"""A table for a terminal, in Markdown and in LaTeX.

The command line imports this module, and has to work on a broken installation:
TensorFlow is not needed, and what lays tables out is imported when it is.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from synth_mtf.results.tables.texts import Cell, Grid, Piece

_LATEX = {
  '\\': r'\textbackslash{}',
  '±': r'$\pm$',
  **{char: f'\\{char}' for char in '&%$#_{}'},
  '~': r'\textasciitilde{}',
  '^': r'\textasciicircum{}',
}


def markdown(grid: Grid) -> str:
  """Returns Markdown, aligned so that it reads well as text, too."""

  def bold(piece: Piece) -> str:
    return f'**{piece.text}**' if piece.best else piece.text

  table = _tabulated(
    ['Model', *grid.headers],
    [[row.label, *(_joined(c, bold) for c in row.cells)] for row in grid.rows],
    'pipe',
  )
  return '\n\n'.join([grid.caption, table, *grid.notes])


def latex(grid: Grid) -> str:
  """Returns a LaTeX table; it needs the package booktabs."""

  def bold(piece: Piece) -> str:
    text = _escaped(piece.text)
    return rf'\textbf{{{text}}}' if piece.best else text

  rows = [
    [_escaped(row.label), *(_joined(cell, bold) for cell in row.cells)]
    for row in grid.rows
  ]
  headers = ['Model', *map(_escaped, grid.headers)]
  return '\n'.join(
    [
      *(f'% {note}' for note in grid.notes),
      r'\begin{table}',
      r'\centering',
      rf'\caption{{{_escaped(grid.caption)}}}',
      rf'\begin{{tabular}}{{l{"r" * len(grid.headers)}}}',
      _tabulated(headers, rows, _booktabs()),
      r'\end{tabular}',
      r'\end{table}',
    ]
  )


def terminal(grid: Grid, width: int, colours: bool = True) -> str:
  """Returns a table for a terminal, in as many pieces as fit below each other.

  Each piece begins with the models' names.

  Args:
    grid: the table.
    width: of the terminal, in characters.
    colours: whether bold may be used.
  """
  import rich.console
  import rich.text

  stream = io.StringIO()
  console = rich.console.Console(
    width=width,
    file=stream,
    force_terminal=colours,
    no_color=True,
    highlight=False,
  )
  console.print(rich.text.Text(grid.caption))
  for columns in _pieces(grid, console):
    console.print(
      _rich(grid, columns, width)
    )  # with an empty line above and below
  for note in grid.notes:
    console.print(rich.text.Text(note))
  lines = stream.getvalue().split('\n')
  return '\n'.join(line.rstrip() for line in lines).rstrip('\n')


def _tabulated(
  headers: Sequence[str], rows: Sequence[Sequence[str]], form: Any
) -> str:
  import tabulate

  return tabulate.tabulate(
    rows,
    headers,
    tablefmt=form,
    colalign=['left', *(['right'] * (len(headers) - 1))],
    disable_numparse=True,
  )


def _booktabs() -> Any:
  """The form of a LaTeX table whose cells may be set in bold.

  tabulate's own, with the same lines, would escape that.
  """
  import tabulate

  row = tabulate.DataRow('', ' & ', r' \\')
  return tabulate.TableFormat(
    lineabove=tabulate.Line(r'\toprule', '', '', ''),
    linebelowheader=tabulate.Line(r'\midrule', '', '', ''),
    linebetweenrows=None,
    linebelow=tabulate.Line(r'\bottomrule', '', '', ''),
    headerrow=row,
    datarow=row,
    padding=0,
    with_header_hide=None,
  )


def _joined(cell: Cell, shown: Callable[[Piece], str]) -> str:
  return '/'.join(map(shown, cell))


def _escaped(text: str) -> str:
  return ''.join(_LATEX.get(char, char) for char in text)


def _rich(grid: Grid, columns: Sequence[int], width: int) -> Any:
  """Returns some columns of a grid as a table of rich's.

  Args:
    grid: the table.
    columns: their numbers.
    width: of the terminal, half of which is enough for the models' names.
  """
  import rich.box
  import rich.table
  import rich.text

  table = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1))
  table.add_column(
    'Model', no_wrap=True, overflow='ellipsis', max_width=width // 2
  )
  for column in columns:
    table.add_column(
      rich.text.Text(grid.headers[column]), justify='right', no_wrap=True
    )
  for row in grid.rows:
    cells = []
    for column in columns:
      text = rich.text.Text('/').join(
        rich.text.Text(piece.text, style='bold' if piece.best else '')
        for piece in row.cells[column]
      )
      cells.append(text)
    table.add_row(rich.text.Text(row.label), *cells)
  return table


def _pieces(grid: Grid, console: Any) -> Iterator[list[int]]:
  """Yields the columns of each piece that fits into a console's width."""
  unbound = console.options.update(max_width=10_000)
  piece: list[int] = []
  for column in range(len(grid.headers)):
    longer = [*piece, column]
    wide = console.measure(_rich(grid, longer, console.width), options=unbound)
    if piece and wide.maximum > console.width:
      yield piece
      longer = [column]
    piece = longer
  if piece:
    yield piece
