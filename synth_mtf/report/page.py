"""Renders the page: tables, figures, the attention viewer, configurations.

The template `page.html` inlines `page.css` and `page.js`, so the page is a
single file. Its content security policy keeps the browser off the network.
"""

import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

import jinja2
import markupsafe

from synth_mtf import __version__, atomic
from synth_mtf.attention.file import Attention
from synth_mtf.errors import UserError
from synth_mtf.report import weights
from synth_mtf.results import alphas, printing, tables, views
from synth_mtf.results.runs import Run

GENERATOR = 'synth-mtf report'  # identifies our pages
_HERE = pathlib.Path(__file__).parent


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
  text = render(
    title=', '.join(dict.fromkeys(run.label for run in runs)),
    tables=[
      views.grid(tables.make(runs, name)) for name in (None, *layout_names)
    ],
    figures=figures,
    models=weights.pack(attentions),
    notes=[*notes, *undrawn],
    configurations=configurations(runs),
    differences=differences(runs),
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
  environment.filters['bold'] = lambda text: markupsafe.Markup(
    printing.BEST.sub(r'<strong>\1</strong>', str(markupsafe.escape(text)))
  )
  return environment.get_template('page.html').render(
    generator=GENERATOR,
    most_tokens=weights.MOST_TOKENS,
    version=__version__,
    css=markupsafe.Markup((_HERE / 'page.css').read_text('utf-8')),
    script=markupsafe.Markup((_HERE / 'page.js').read_text('utf-8')),
    **content,
  )


def draw(
  runs: Sequence[Run], attentions: Sequence[Attention]
) -> tuple[list[tuple[str, str]], list[str]]:
  """Returns captions and SVG of figures, and notes on missing figures."""
  try:
    from synth_mtf.figures import of_attention, of_runs, style
  except UserError as error:
    return [], [f'No figures: {error}.']

  def alpha(run: Run) -> Any:
    found = alphas.frame(run)
    return None if found.empty else of_runs.alpha(run.label, found)

  wanted: list[tuple[str, Any, Any]] = [
    ('Learning curves', of_runs.curves, runs),
    ('Score against speed and parameters', of_runs.scores, runs),
  ]
  if attentions:
    wanted += [
      ('Sizes of attention weights', of_attention.histograms, attentions),
      ('Entropy and distance of each head', of_attention.heads, attentions),
    ]
  wanted += [
    (f'Alpha over training, {run.label}, {run.name}', alpha, run)
    for run in runs
    if run.gin
  ]
  found, missing = [], []
  for caption, function, argument in wanted:
    try:
      if figure := function(argument):
        found.append((caption, style.svg(figure)))
    except UserError as error:
      missing.append(f'Not drawn ({caption}): {error}.')
  return found, missing


def configurations(runs: Sequence[Run]) -> list[tuple[str, str]]:
  """Returns the name and operative configuration of each run that has one."""
  return [(f'{x.label}, {x.name}', x.gin.strip()) for x in runs if x.gin]


def differences(runs: Sequence[Run]) -> printing.Grid:
  """Returns a table of the settings that differ between configurations."""
  bindings = [run.bindings for run in runs if run.gin]
  rows = [
    (name, *(bound.get(name, 'not set') for bound in bindings))
    for name in sorted(set().union(*bindings))
  ]
  return printing.Grid(
    'Settings that differ',
    ['gin', *(name for name, _ in configurations(runs))],
    [row for row in rows if len(set(row[1:])) > 1],
  )
