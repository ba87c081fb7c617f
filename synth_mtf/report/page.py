"""The page of `synth-mtf report`: what is on it, and its HTML.

`page.html` is its template; `page.css` and the scripts of the viewer are put
into it, so that it is one file, and a policy in it keeps the browser off the
network.
"""

import base64
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Optional

import jinja2
import markupsafe

from synth_mtf.report.weights import Packed
from synth_mtf.results.printing import Grid

# By this, a page is known for one of ours.
GENERATOR = 'synth-mtf report'
_SCRIPTS = ('weights.js', 'drawing.js', 'viewer.js')
_HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Figure:
  """A picture, as SVG, and what it shows."""

  caption: str
  svg: str


@dataclasses.dataclass(frozen=True)
class Configuration:
  """A run's name on the page, and its operative configuration."""

  name: str
  gin: str


@dataclasses.dataclass(frozen=True)
class Difference:
  """A setting, and its value in each configuration; None where not set."""

  name: str
  values: Sequence[Optional[str]]


@dataclasses.dataclass(frozen=True)
class Page:
  """What is on a page.

  Attributes:
    title: of the page.
    subtitle: what it was made of and by.
    summary: a row for each run.
    tables: of results.
    figures: curves, histograms, heads.
    weights: for the attention viewer; None leaves it out.
    notes: what is missing, and why.
    configurations: of the runs that have one.
    differences: between these.
    commands: that make the page again.
  """

  title: str
  subtitle: str
  summary: Grid
  tables: Sequence[Grid]
  figures: Sequence[Figure]
  weights: Optional[Packed]
  notes: Sequence[str]
  configurations: Sequence[Configuration]
  differences: Sequence[Difference]
  commands: Sequence[str]


def html(page: Page) -> str:
  """Returns the page as one HTML file that needs no other."""
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_HERE),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
  )
  environment.filters['base64'] = _base64
  return environment.get_template('page.html').render(
    page=page,
    generator=GENERATOR,
    css=_source('page.css'),
    scripts=[_source(name) for name in _SCRIPTS],
  )


def _base64(text: str) -> str:
  return base64.b64encode(text.encode('utf-8')).decode('ascii')


def _source(name: str) -> markupsafe.Markup:
  return markupsafe.Markup((_HERE / name).read_text('utf-8'))
