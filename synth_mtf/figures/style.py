"""Sets the style of all figures: legible in print and with any colour vision.

The colours are the Okabe-Ito palette. Lines also differ in their dashes and
points in their markers, so that black-and-white copies remain readable.
"""

import contextlib
import io
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from synth_mtf.errors import UserError
from synth_mtf.storage import atomic, filesystem

# Figures are files. A notebook names a backend that may be missing here.
os.environ['MPLBACKEND'] = 'agg'
try:
  import matplotlib
  from matplotlib import colors
  from matplotlib.axes import Axes as Axes
  from matplotlib.figure import Figure as Figure
except ImportError as error:
  raise UserError(
    'figures need matplotlib, which is not installed: '
    "pip install -c constraints.txt '.[plot]'"
  ) from error

Panels: TypeAlias = npt.NDArray[Any]  # of Axes, [row, column]
WIDTH = 6.5  # inches: A4 or letter without margins
# The Okabe-Ito palette without yellow, which is too faint for lines.
_COLOURS = (
  '#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000',
)  # fmt: skip
DASHES = ('-', (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
_MARKERS = 'osD^vPX'
_MOST_POINTS = 300  # of a line, in `points`
_MARK = 'synth-mtf plot'  # identifies our files
_SETTINGS = {
  'axes.axisbelow': True,
  'axes.grid': True,
  'axes.spines.right': False,
  'axes.spines.top': False,
  'axes.titlesize': 'medium',
  'figure.titlesize': 'medium',
  'font.size': 8,
  'grid.color': '0.9',
  'grid.linewidth': 0.5,
  'legend.fontsize': 7.5,
  'legend.frameon': False,
  'lines.linewidth': 1.3,
  'lines.markersize': 4,
  'savefig.dpi': 200,
  'svg.fonttype': 'none',  # keeps text as text
  'svg.hashsalt': 'synth_mtf',  # makes files reproducible
  'text.parse_math': False,  # shows a $ in a name as it is
  'xtick.labelsize': 7,
  'ytick.labelsize': 7,
}


class Look(NamedTuple):
  """The colour, dashes and marker of one variant."""

  color: str
  linestyle: Any
  marker: str


def look(number: int) -> Look:
  """Returns the look of a variant, given its index."""
  shifted = number + number // len(_COLOURS)
  return Look(
    _COLOURS[number % len(_COLOURS)],
    DASHES[shifted % len(DASHES)],
    _MARKERS[shifted % len(_MARKERS)],
  )


def signed(most: float) -> Any:
  """Returns the shades of numbers from -`most` to `most`."""
  return colors.Normalize(-most, most)


def rooted(most: float) -> Any:
  """Returns the shades of numbers up to `most`, by their square roots."""
  return colors.PowerNorm(0.5, 0, most)


def chosen(
  numbers: Sequence[int] | None, most: int, what: str = 'layer'
) -> list[int]:
  """Returns the given numbers, or by default the paper's: 1, 3 and 5.

  If there are fewer than five, the default is all of them. Raises a UserError
  for a number outside 1..`most`.
  """
  if not numbers:
    return [1, 3, 5] if most >= 5 else list(range(1, most + 1))
  for number in numbers:
    if not 1 <= number <= most:
      raise UserError(f'there is no {what} {number}; there are 1 to {most}')
  return list(numbers)


@contextlib.contextmanager
def panels(
  rows: int,
  columns: int,
  height: float = 1.6,
  layout: str = 'constrained',
  legend_title: str | None = None,
  width: float = WIDTH,
  **settings: Any,
) -> Iterator[tuple[Figure, Panels]]:
  """Yields a figure and its panels, indexed [row, column], to be drawn on.

  All that is drawn inside the `with` block has our style. A legend of all
  panels is added at its end.

  Args:
    rows: number of rows.
    columns: number of columns.
    height: height of a row in inches.
    layout: 'compressed' if panels have a fixed aspect ratio.
    legend_title: shown above the legend.
    width: width of the figure in inches.
    **settings: passed to `Figure.subplots`.
  """
  with matplotlib.rc_context(_SETTINGS):
    figure = Figure(figsize=(width, height * rows + 0.55), layout=layout)
    yield figure, figure.subplots(rows, columns, squeeze=False, **settings)
    _add_legend(figure, legend_title)


def _add_legend(figure: Figure, title: str | None) -> None:
  """Adds one legend above all panels; a long one makes the figure taller."""
  handles: dict[str, Any] = {}
  for panel in figure.axes:
    for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
      handles[label] = handle
  if not handles:
    return
  # A label takes about 0.5 inches plus 0.062 inches per character.
  longest = max(len(label) for label in handles)
  fitting = int(WIDTH / (0.5 + 0.062 * longest))
  columns = min(len(handles), 4, max(fitting, 1))
  figure.legend(
    list(handles.values()),
    list(handles),
    loc='outside upper center',
    ncols=columns,
    title=title,
  )
  rows = math.ceil(len(handles) / columns)
  if rows > 2:
    # A row takes 0.16 inches.
    figure.set_figheight(figure.get_figheight() + 0.16 * (rows - 2))


def write(figure: Figure, path: str) -> list[str]:
  """Writes a figure as PNG and SVG, and returns both paths.

  `path` has no suffix; its folder is created if necessary.
  """
  filesystem.make_folder(os.path.dirname(path) or '.')
  for kind in ('png', 'svg'):
    atomic.check_replaceable(f'{path}.{kind}', _MARK)
    with atomic.writing(f'{path}.{kind}', 'wb') as stream:
      stream.write(_content(figure, kind))
  return [f'{path}.png', f'{path}.svg']


def svg(figure: Figure) -> str:
  """Returns a figure as SVG, without the XML declaration."""
  text = _content(figure, 'svg').decode('utf-8')
  return text[text.index('<svg') :]


def points(figure: Figure) -> list[dict[str, Any]]:
  """Returns the labelled lines of each panel, for readers of an SVG.

  A point is its place (shares of the width from the left, and of the height
  from the top) and its x and y. Call it after `svg`, which lays the panels out.
  Of a long line, some points are left out.
  """
  panels = []
  for panel in figure.axes:
    lines = []
    for line in panel.lines:
      label = str(line.get_label())
      data = line.get_xydata()
      if label.startswith('_') or not len(data):
        continue
      data = data[:: math.ceil(len(data) / _MOST_POINTS)]
      pixels = panel.transData.transform(data)
      places = figure.transFigure.inverted().transform(pixels)
      shown = [
        [round(left, 4), round(1 - above, 4), f'{x:g}', f'{y:.4g}']
        for (left, above), (x, y) in zip(places, data, strict=True)
        if math.isfinite(left + above)
      ]
      lines.append({'label': label, 'points': shown})
    if lines:
      title = panel.get_title().replace('\n', ' ')
      panels.append({'title': title, 'lines': lines})
  return panels


def _content(figure: Figure, kind: str) -> bytes:
  stream = io.BytesIO()
  marks = {'png': {'Software': _MARK}, 'svg': {'Creator': _MARK, 'Date': None}}
  with matplotlib.rc_context(_SETTINGS):
    figure.savefig(stream, format=kind, metadata=marks[kind])
  return stream.getvalue()
