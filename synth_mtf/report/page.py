"""Makes the page: tables, figures, the attention viewer, configurations.

`page.html` is its template, into which `page.css` and `page.js` are pasted, so
that the page is one file; a policy in it keeps the browser off the network.
"""

import pathlib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import jinja2
import markupsafe
import tensorflow.compat.v1 as tf

from synth_mtf import __version__, atomic
from synth_mtf.attention.file import Attention
from synth_mtf.errors import UserError
from synth_mtf.report import weights
from synth_mtf.results import alphas, layouts, seeds, tables, views
from synth_mtf.results.printing import Grid, Piece, Row
from synth_mtf.results.runs import Run

GENERATOR = 'synth-mtf report'  # marks a page as ours
# Keeps a page, most of which is weights, below 10 MB.
_MAX_BYTES = 8_000_000
_HERE = pathlib.Path(__file__).parent


def check_replaceable(path: str) -> None:
  """Refuses to overwrite a file that is no page of `synth-mtf report`."""
  if not tf.io.gfile.exists(path):
    return
  with tf.io.gfile.GFile(path, 'rb') as stream:
    beginning = stream.read(1000)
  if GENERATOR.encode() not in beginning:
    raise UserError(
      f'--out {path} exists and is not a page of `{GENERATOR}`; it was not '
      'changed. Give another name, or move it away.'
    )


def write(
  path: str,
  runs: Sequence[Run],
  attentions: Sequence[Attention] = (),
  layout_names: Sequence[str] = (),
  commands: Sequence[Sequence[str]] = (),
  notes: Sequence[str] = (),
) -> None:
  """Writes a page, whole or not at all.

  Args:
    path: local or in a bucket; a file that is there is replaced.
    runs: at least one.
    attentions: what some of them attend to.
    layout_names: tables to show beside the overview.
    commands: that reproduce the page and its parts.
    notes: what the page lacks, and why.

  Raises:
    UserError: a run cannot be read or has no results of a layout, or the page
      cannot be written.
  """
  grids = [
    views.grid(tables.make(runs, name)) for name in (None, *layout_names)
  ]
  figures, undrawn = draw(runs, attentions)
  text = render(
    title=_title(runs),
    summary=summary(runs),
    tables=grids,
    figures=figures,
    weights=weights.pack(attentions, _MAX_BYTES) if attentions else None,
    notes=[*notes, *undrawn],
    configurations=configurations(runs),
    differences=differences(runs),
    commands=[shlex.join(command) for command in commands],
  )
  try:
    atomic.write(path, text)
  except (OSError, tf.errors.OpError) as error:
    raise UserError(f'--out {path} cannot be written: {error}') from error


def render(**content: Any) -> str:
  """Returns the HTML; `content` has the variables of page.html."""
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_HERE),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
  )
  return environment.get_template('page.html').render(
    generator=GENERATOR,
    version=__version__,
    css=markupsafe.Markup((_HERE / 'page.css').read_text('utf-8')),
    script=markupsafe.Markup((_HERE / 'page.js').read_text('utf-8')),
    **content,
  )


def one_per_model(runs: Sequence[Run]) -> list[Run]:
  """Returns one run of each model: of runs that differ by seed, the first."""
  return [same[0] for same in seeds.by_model(runs).values()]


def _title(runs: Sequence[Run]) -> str:
  labels = list(dict.fromkeys(run.label for run in runs))
  return ', '.join(labels) if len(labels) < 5 else f'{len(labels)} models'


def summary(runs: Sequence[Run]) -> Grid:
  """Returns a table with a row for each run."""

  def row(run: Run) -> Row:
    texts = [
      None if run.seed is None else str(run.seed),
      f'{run.steps[-1]:,}' if run.steps else None,
      layouts.millions(run.parameters) if run.parameters else None,
      f'{run.steps_per_second:.1f}' if run.steps_per_second else None,
      run.name,
    ]
    return Row(run.label, [[Piece(text or views.MISSING)] for text in texts])

  return Grid(
    caption=f'{len(runs)} run{"s" * (len(runs) > 1)}',
    headers=['Seed', 'Last step', 'Params', 'Steps/s', 'Folder'],
    rows=[row(run) for run in runs],
    notes=[],
  )


def draw(
  runs: Sequence[Run], attentions: Sequence[Attention]
) -> tuple[list[tuple[str, str]], list[str]]:
  """Returns captions and SVG of the figures, and why others are missing."""
  try:
    from synth_mtf.results.figures import style
  except UserError as error:
    return [], [f'No figures: {error}.']
  found, missing = [], []
  for caption, function, *arguments in _figures(runs, attentions):
    try:
      found.append((caption, style.svg(function(*arguments))))
    except UserError as error:
      missing.append(f'Not drawn ({caption}): {error}.')
  return found, missing


def _figures(
  runs: Sequence[Run], attentions: Sequence[Attention]
) -> Iterator[tuple[Any, ...]]:
  """Yields the caption, function and arguments of each figure."""
  from synth_mtf.attention import figures
  from synth_mtf.results.figures import alpha, curves, scores

  yield 'Learning curves', curves.draw, runs
  yield 'Score against speed and parameters', scores.draw, runs
  if attentions:
    yield 'Sizes of attention weights', figures.histograms, attentions
    yield 'Entropy and distance of each head', figures.heads, attentions
  for run in runs:
    paths = alphas.paths(run) if run.gin else []
    if paths:
      caption = f'Alpha over training, {run.label}, {run.name}'
      yield caption, alpha.draw, run.label, paths


def configurations(runs: Sequence[Run]) -> list[tuple[str, str]]:
  """Returns a name and the operative configuration of runs that have one."""
  labels = [run.label for run in runs]
  return [
    (
      run.label if labels.count(run.label) == 1 else f'{run.label}, {run.name}',
      run.gin.strip(),
    )
    for run in runs
    if run.gin
  ]


def differences(
  runs: Sequence[Run],
) -> list[tuple[str, list[Optional[str]]]]:
  """Returns each setting that differs, and its value in each configuration."""
  bindings = [run.bindings for run in runs if run.gin]
  settings = sorted(set().union(*bindings))
  rows = [(name, [bound.get(name) for bound in bindings]) for name in settings]
  return [(name, values) for name, values in rows if len(set(values)) > 1]
