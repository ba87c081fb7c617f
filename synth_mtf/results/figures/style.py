"""The style of all figures: legible in print, and with any colour vision.

Colours are those of Okabe and Ito. Lines also differ in their dashes, points in
their markers, so that copies in black and white remain readable.
"""

import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from synth_mtf import atomic
from synth_mtf.errors import UserError

try:
  import matplotlib
except ImportError as error:
  raise UserError(
    'figures need matplotlib, which is not installed: '
    "pip install -c constraints.txt '.[plot]'"
  ) from error
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

WIDTH = 6.5  # inches: A4 or letter without margins
GREY = '0.45'
_DOTS_PER_INCH = 200
# Without their yellow, which is too faint for a line.
_COLOURS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#56B4E9',
  '#E69F00',
  '#000000',
)
DASHES: tuple[Any, ...] = (
  '-',
  (0, (5, 1.5)),
  (0, (1.2, 1.2)),
  (0, (5, 1.2, 1.2, 1.2)),
)
_MARKERS = 'osD^vPX'
_LEGEND_COLUMNS = 4
_SETTINGS = {
  'axes.axisbelow': True,
  'axes.grid': True,
  'axes.labelsize': 8,
  'axes.linewidth': 0.6,
  'axes.spines.right': False,
  'axes.spines.top': False,
  'axes.titlesize': 8,
  'figure.titlesize': 9,
  'font.size': 8,
  'grid.color': '0.9',
  'grid.linewidth': 0.5,
  'legend.fontsize': 7.5,
  'legend.title_fontsize': 9,
  'legend.frameon': False,
  'lines.linewidth': 1.3,
  'lines.markersize': 4,
  'svg.fonttype': 'none',  # text stays text
  'svg.hashsalt': 'synth_mtf',  # the same figure is the same file
  'xtick.labelsize': 7,
  'xtick.major.width': 0.6,
  'ytick.labelsize': 7,
  'ytick.major.width': 0.6,
}


class Look(NamedTuple):
  """How the lines and points of one variant look."""

  color: str
  linestyle: Any
  marker: str


def look(number: int) -> Look:
  """Returns the look of a variant, counted from 0."""
  round_ = number // len(_COLOURS)
  return Look(
    _COLOURS[number % len(_COLOURS)],
    DASHES[(number + round_) % len(DASHES)],
    _MARKERS[(number + round_) % len(_MARKERS)],
  )


def chosen(numbers: Optional[Sequence[int]], most: int, what: str) -> list[int]:
  """The given numbers, which count from 1.

  Raises:
    UserError: one is not there.
  """
  wrong = [number for number in numbers or () if not 1 <= number <= most]
  if wrong:
    raise UserError(f'there is no {what} {wrong[0]}; there are 1 to {most}')
  return list(numbers or ())


def panels(
  rows: int,
  columns: int,
  draw: Callable[[Figure, Sequence[Sequence[Axes]]], None],
  height: float = 1.6,
  layout: str = 'constrained',
  **settings: Any,
) -> Figure:
  """Returns a figure of panels in our style.

  Args:
    rows: how many.
    columns: how many.
    draw: fills them; [row][column].
    height: of a row in inches.
    layout: as in `Figure`; 'compressed' where panels keep their aspect.
    **settings: of `Figure.subplots`.
  """
  with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS}):
    figure = Figure(figsize=(WIDTH, height * rows + 0.55), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    draw(figure, axes)
  return figure


def legend(
  figure: Figure, axes: Iterable[Axes], title: Optional[str] = None
) -> None:
  """Adds one legend above all panels.

  It has as many columns as fit, four at most; each row beyond the second makes
  the figure taller.
  """
  handles: dict[str, Any] = {}
  for one in axes:
    for handle, label in zip(*one.get_legend_handles_labels()):
      handles.setdefault(label, handle)
  if not handles:
    return
  renderer = FigureCanvasAgg(figure).get_renderer()
  columns = min(len(handles), _LEGEND_COLUMNS)
  while True:
    drawn = figure.legend(
      list(handles.values()),
      list(handles),
      loc='outside upper center',
      ncols=columns,
      title=title,
    )
    extent = drawn.get_window_extent(renderer)
    if extent.width <= figure.bbox.width or columns == 1:
      break
    drawn.remove()
    columns -= 1
  rows = -(-len(handles) // columns)
  if rows > 2:
    more = (rows - 2) / rows * extent.height / figure.dpi
    figure.set_figheight(figure.get_figheight() + more)


def leave_out_overlaps(figure: Figure, texts: Iterable[Text]) -> None:
  """Hides texts that overlap an earlier one; the legend has them all."""
  figure.draw_without_rendering()  # settles where everything is
  shown: list[Bbox] = []
  for text in texts:
    extent = text.get_window_extent()
    text.set_visible(not any(extent.overlaps(other) for other in shown))
    if text.get_visible():
      shown.append(extent)


def write(figure: Figure, path: str) -> list[str]:
  """Writes a figure as PNG and as SVG.

  Args:
    figure: of `panels`.
    path: without the suffix; its folder is created if need be.

  Returns:
    The paths of both.

  Raises:
    UserError: they cannot be written.
  """
  paths = [f'{path}.png', f'{path}.svg']
  try:
    tf.io.gfile.makedirs(os.path.dirname(path) or '.')
    _write(paths[0], _content(figure, 'png'))
    _write(paths[1], _content(figure, 'svg'))
  except (OSError, tf.errors.OpError) as error:
    raise UserError(f'{path} cannot be written: {error}') from error
  return paths


def svg(figure: Figure) -> str:
  """Returns a figure as SVG, without the XML declaration."""
  text = _content(figure, 'svg').decode('utf-8')
  return text[text.index('<svg') :]


def _content(figure: Figure, kind: str) -> bytes:
  stream = io.BytesIO()
  metadata = {'Date': None} if kind == 'svg' else {'Software': None}
  with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS}):
    figure.savefig(stream, format=kind, dpi=_DOTS_PER_INCH, metadata=metadata)
  return stream.getvalue()


def _write(path: str, content: bytes) -> None:
  if '://' in path:
    with tf.io.gfile.GFile(path, 'wb') as stream:
      stream.write(content)
    return
  with atomic.replacing(path) as partial:
    partial.write_bytes(content)
