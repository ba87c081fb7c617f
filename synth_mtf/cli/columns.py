"""Prints a table line by line, while its rows are still being computed."""

from collections.abc import Sequence
from typing import Optional

_GAP = '  '


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
  """Returns the cells side by side.

  Args:
    cells: a text for each column.
    widths: of the columns; a negative one is filled from the right.
  """
  filled = (
    cell.rjust(-width) if width < 0 else cell.ljust(width)
    for cell, width in zip(cells, widths)
  )
  return _GAP.join(filled).rstrip()


def count(number: Optional[int]) -> str:
  """Returns a number with commas, '?' for one that is not known."""
  return '?' if number is None else f'{number:,}'
