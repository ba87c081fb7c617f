"""A table as texts: what every cell says, and what is to be noted.

It holds nothing else and needs no TensorFlow, so that one process can hand it
to another, and it can be written in any format.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Piece:
  """A text in a cell.

  Attributes:
    text: it.
    best: whether no model has a better number.
  """

  text: str
  best: bool = False


Cell = Sequence[Piece]  # those of a cell have a / between them


@dataclasses.dataclass(frozen=True)
class Row:
  """A row: the name of what it is of, and its cells."""

  label: str
  cells: Sequence[Cell]


@dataclasses.dataclass(frozen=True)
class Grid:
  """A table as texts.

  Attributes:
    caption: above it.
    headers: of its columns, without the first, which has the labels.
    rows: in their order.
    notes: below it, a sentence or several each.
  """

  caption: str
  headers: Sequence[str]
  rows: Sequence[Row]
  notes: Sequence[str]
