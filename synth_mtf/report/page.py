"""Renders the page: tables, figures, the attention viewer, configurations.

The template `page.html` inlines `page.css` and `page.js`, so the page is a
single file. Its content security policy keeps the browser off the network.
"""

import pathlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import markupsafe

from synth_mtf import __version__
from synth_mtf.attention.file import Attention
from synth_mtf.errors import UserError
from synth_mtf.report import weights
from synth_mtf.results import alphas, printing, tables, views
from synth_mtf.results.runs import Run
from synth_mtf.storage import atomic

GENERATOR = 'synth-mtf report'  # identifies our pages
_COMMIT = re.compile(r'\b([0-9a-f]{12})[0-9a-f]{28}\b')
# A weight that has moved less is a flat line in a figure from 0 to 1.
_LEAST_MOVE = 0.02
_HERE = pathlib.Path(__file__).parent


class Drawn(NamedTuple):
  """A figure of the page.

  Attributes:
    caption: what it shows.
    svg: the picture.
    panels: as returned by `figures.style.points`.
  """

  caption: str
  svg: str
  panels: Sequence[Mapping[str, Any]] = ()


def write(
  path: str,
  runs: Sequence[Run],
  attentions: Sequence[Attention] = (),
  layout_names: Sequence[str] = (),
  command: Sequence[str] = (),
  notes: Sequence[str] = (),
) -> None:
  """Writes a page atomically.

  Args:
    path: local or in a bucket; an existing file is replaced.
    runs: at least one.
    attentions: the attention of some of the runs.
    layout_names: tables to show in addition to the overview.
    command: what reproduces the page.
    notes: what the page lacks, and why.

  Raises:
    UserError: a run cannot be read or has no results for a layout.
  """
  figures, undrawn = draw(runs, attentions)
  labels = dict.fromkeys(run.label for run in runs)
  layouts = (None, *layout_names)  # None: the overview
  text = render(
    title=', '.join(labels),
    tables=[views.grid(tables.make(runs, layout)) for layout in layouts],
    figures=figures,
    models=weights.pack(attentions),
    notes=[*notes, *undrawn],
    configurations=configurations(runs),
    differences=differences(runs),
    origins=origins(runs),
    command=shlex.join(command),
  )
  atomic.write(path, text)


def render(**content: Any) -> str:
  """Returns the HTML; `content` holds the variables of page.html."""
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_HERE),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
  )
  environment.filters['bold'] = _bold
  return environment.get_template('page.html').render(
    generator=GENERATOR,
    most_tokens=weights.MOST_TOKENS,
    version=__version__,
    css=markupsafe.Markup((_HERE / 'page.css').read_text('utf-8')),
    figures_script=markupsafe.Markup((_HERE / 'figures.js').read_text('utf-8')),
    script=markupsafe.Markup((_HERE / 'page.js').read_text('utf-8')),
    **content,
  )


def _bold(text: str) -> markupsafe.Markup:
  """Escapes a cell, shows the best in bold, and lets lines end after a `/`."""
  escaped = str(markupsafe.escape(text))
  marked = printing.BEST.sub(
    r'<strong>\1</strong>', escaped.replace('/', '/<wbr>')
  )
  return markupsafe.Markup(marked)


def draw(
  runs: Sequence[Run], attentions: Sequence[Attention]
) -> tuple[list[Drawn], list[str]]:
  """Returns the figures, and notes on missing ones."""
  try:
    from synth_mtf.figures import of_attention, of_runs, style
  except UserError as error:
    return [], [f'No figures: {error}.']

  figures = []
  missing = []

  def add(caption: str, function: Callable[[Any], Any], argument: Any) -> None:
    try:
      figure = function(argument)
    except UserError as error:
      missing.append(f'Not drawn ({caption}): {error}.')
    else:
      if figure is not None:
        figures.append(Drawn(caption, style.svg(figure), style.points(figure)))

  def add_curves() -> None:
    try:
      pages = of_runs.curves(runs)
    except UserError as error:
      missing.append(f'Not drawn (Learning curves): {error}.')
      return
    for number, figure in enumerate(pages, 1):
      page = f', {number} of {len(pages)}' if len(pages) > 1 else ''
      svg = style.svg(figure)
      caption = f'Learning curves{page}'
      figures.append(Drawn(caption, svg, style.points(figure)))
    missing.extend(
      f'Learning curves: {note}.' for note in of_runs.without_curves(runs)
    )

  def alpha(run: Run) -> Any:
    of_run = alphas.frame(run)
    if of_run.empty:
      return None
    if alphas.largest_move(of_run) < _LEAST_MOVE:
      raise UserError(f'no weight differs by {_LEAST_MOVE} between checkpoints')
    return of_runs.alpha(run.label, of_run)

  add_curves()
  scores = 'Score against speed and parameters'
  before = len(figures)
  add(scores, of_runs.scores, runs)
  if len(figures) > before:
    missing.extend(
      f'{scores}: {note}.' for note in of_runs.without_scores(runs)
    )
  if attentions:
    add('Sizes of attention weights', of_attention.histograms, attentions)
    add('Entropy and distance of each head', of_attention.heads, attentions)
  for run in runs:
    if run.gin:
      add(f'Alpha over training, {run.label}, {run.name}', alpha, run)
  return figures, missing


def configurations(runs: Sequence[Run]) -> list[tuple[str, str]]:
  """Returns the name and operative configuration of each run that has one."""
  return [
    (f'{run.label}, {run.name}', run.gin.strip()) for run in runs if run.gin
  ]


def origins(runs: Sequence[Run]) -> printing.Grid:
  """Returns a table of when runs were made, and by which code."""
  rows = []
  for run in runs:
    last = run.origins[-1] if run.origins else {}
    versions = last.get('versions') or {}
    rows.append(
      (
        f'{run.label}, {run.name}',
        str(last.get('date') or 'unknown'),
        str(versions.get('synth-mtf', 'unknown')),
        _COMMIT.sub(r'\1', str(versions.get('commit', 'unknown'))),
      )
    )
  headers = ['run', 'last command', 'synth_mtf', 'commit']
  return printing.Grid('When and with which code', headers, rows)


def differences(runs: Sequence[Run]) -> printing.Grid:
  """Returns a table of the settings that differ between configurations."""
  bindings_of_runs = [run.bindings for run in runs if run.gin]
  names = sorted(set().union(*bindings_of_runs))
  rows = []
  for name in names:
    values = [bindings.get(name, 'not set') for bindings in bindings_of_runs]
    if len(set(values)) > 1:
      rows.append((name, *values))
  runs_with_gin = [name for name, _ in configurations(runs)]
  return printing.Grid('Settings that differ', ['gin', *runs_with_gin], rows)
