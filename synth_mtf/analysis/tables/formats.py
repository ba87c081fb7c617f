"""A table in the formats of a terminal, of documents and of programs."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

import tabulate

from synth_mtf.analysis.paper_scores import SCORES
from synth_mtf.analysis.tables.columns import Found
from synth_mtf.analysis.tables.grid import Cell, Grid, Piece
from synth_mtf.analysis.tables.table import Model, Numbers, Table

# tabulate's own form with booktabs' lines would escape what is set in bold.
_BOOKTABS = tabulate.TableFormat(
  lineabove=tabulate.Line(r'\toprule', '', '', ''),
  linebelowheader=tabulate.Line(r'\midrule', '', '', ''),
  linebetweenrows=None,
  linebelow=tabulate.Line(r'\bottomrule', '', '', ''),
  headerrow=tabulate.DataRow('', ' & ', r' \\'),
  datarow=tabulate.DataRow('', ' & ', r' \\'),
  padding=0,
  with_header_hide=None,
)
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
      _tabulated(headers, rows, _BOOKTABS),
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
    console.print(_rich(grid, columns))  # with an empty line above and below
  for note in grid.notes:
    console.print(rich.text.Text(note))
  lines = stream.getvalue().split('\n')
  return '\n'.join(line.rstrip() for line in lines).rstrip('\n')


def comma_separated(table: Table, errors: bool = False) -> str:
  """Returns CSV: a line for each model, a field for each number in full.

  Args:
    table: the numbers; what is missing or not defined is an empty field.
    errors: whether n and standard errors have fields, too.
  """
  rows = [_fields(table, model, errors) for model in table.models]
  names = list(dict.fromkeys(name for row in rows for name in row))
  stream = io.StringIO()
  writer = csv.DictWriter(stream, names, lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  return stream.getvalue().rstrip('\n')


def as_json(table: Table, notes: Sequence[str], paper: bool = False) -> str:
  """Returns JSON: every number of every run, with where it comes from.

  Args:
    table: the numbers.
    notes: what is to be noted.
    paper: whether the paper's figures are among them.
  """
  content = {
    'title': table.title,
    'checkpoint': table.checkpoint,
    'models': [_described(table, model, paper) for model in table.models],
    'notes': list(notes),
  }
  return json.dumps(content, indent=1, ensure_ascii=False)


def _tabulated(
  headers: Sequence[str], rows: Sequence[Sequence[str]], form: Any
) -> str:
  return tabulate.tabulate(
    rows,
    headers,
    tablefmt=form,
    colalign=['left', *(['right'] * (len(headers) - 1))],
    disable_numparse=True,
  )


def _joined(cell: Cell, shown: Callable[[Piece], str]) -> str:
  return '/'.join(map(shown, cell))


def _escaped(text: str) -> str:
  return ''.join(_LATEX.get(char, char) for char in text)


def _rich(grid: Grid, columns: Sequence[int]) -> Any:
  """Returns some columns of a grid as a table of rich's."""
  import rich.box
  import rich.table
  import rich.text

  table = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1))
  table.add_column('Model', no_wrap=True, overflow='ellipsis')
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
  piece: list[int] = []
  for column in range(len(grid.headers)):
    longer = [*piece, column]
    wide = console.measure(_rich(grid, longer), options=_unbounded(console))
    if piece and wide.maximum > console.width:
      yield piece
      longer = [column]
    piece = longer
  if piece:
    yield piece


def _unbounded(console: Any) -> Any:
  return console.options.update(max_width=10_000)


def _fields(
  table: Table, model: Model, errors: bool
) -> dict[str, Optional[object]]:
  fields: dict[str, Optional[object]] = {
    'model': model.label,
    'runs': len(model.runs),
  }
  for name, numbers in _named(table, model):
    fields[name] = numbers.mean
    if len(model.runs) > 1:
      fields[f'{name} sd'] = numbers.deviation
    if errors:
      fields[f'{name} n'] = numbers.n
      fields[f'{name} se'] = numbers.standard_error
  return fields


def _named(table: Table, model: Model) -> Iterator[tuple[str, Numbers]]:
  """Yields the numbers of a model with names that no two of them share."""
  for column in table.columns:
    for measure, numbers in zip(column.measures, model.cells[column.key]):
      several = len(column.measures) > 1
      yield f'{column.key} {measure.name}' if several else column.key, numbers


def _described(table: Table, model: Model, paper: bool) -> dict[str, Any]:
  figures = [
    figure
    for column in table.columns
    for figure in SCORES.get(
      (column.key, model.known_as), [None] * len(column.measures)
    )
  ]
  return {
    'label': model.label,
    'runs': [
      {'name': name, 'seed': seed}
      for name, seed in zip(model.runs, model.seeds)
    ],
    'numbers': {
      name: {
        'mean': numbers.mean,
        'standard_deviation': numbers.deviation,
        'runs': [_of_a_run(found) for found in numbers.found],
        **({'paper': figure} if paper else {}),
      }
      for (name, numbers), figure in zip(_named(table, model), figures)
    },
  }


def _of_a_run(found: Optional[Found]) -> Optional[Mapping[str, Any]]:
  if found is None:
    return None
  result = found.result
  if result is None:
    return {'value': found.value}
  return {
    'value': found.value,
    'n': result.n,
    'unit': result.unit,
    'standard_error': found.standard_error,
    'task': result.task,
    'split': result.split,
    'metric': result.metric,
    'step': result.step,
  }
