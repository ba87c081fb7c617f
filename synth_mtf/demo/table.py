"""A table as Markdown that is also aligned for reading as text."""

from collections.abc import Sequence

Column = tuple[str, Sequence[str]]  # header, a text per row


def markdown(table: Sequence[Column]) -> str:
  """Returns the columns as a Markdown table that is also aligned as text."""
  widths = [max(map(len, [header, *cells])) for header, cells in table]
  header = _line([header for header, _ in table], widths)
  rule = '|' + '|'.join(
    '-' * (width + 1) + (':' if i else '-') for i, width in enumerate(widths)
  )
  rows = zip(*(cells for _, cells in table))
  return '\n'.join([header, rule + '|', *(_line(row, widths) for row in rows)])


def folded(table: Sequence[Column], width: int) -> str:
  """Returns the table in as many pieces as fit below each other.

  Each piece begins with the models' names.
  """
  pieces = [[table[0]]]
  for column in table[1:]:
    longer = [*pieces[-1], column]
    fits = len(markdown(longer).split('\n', 1)[0]) <= width
    if fits or len(longer) == 2:
      pieces[-1] = longer
    else:
      pieces.append([table[0], column])
  return '\n\n'.join(map(markdown, pieces))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
  first, *others = [
    cell.ljust(width) if i == 0 else cell.rjust(width)
    for i, (cell, width) in enumerate(zip(cells, widths))
  ]
  return f'| {" | ".join([first, *others])} |'
