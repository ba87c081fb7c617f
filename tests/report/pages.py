"""Pages made for tests, and a reader of them."""

import html.parser
import json
from typing import Any

from synth_mtf.report import page
from synth_mtf.results.printing import Grid


def render(**changes: Any) -> str:
  """Renders a page with one table and no more, but for some changes."""
  content: dict[str, Any] = {
    'title': 'Two runs',
    'tables': [Grid('Runs', ['Model', 'Step'], [['T5 (V)', '100']])],
    'figures': [],
    'models': [],
    'notes': [],
    'configurations': [],
    'differences': Grid('Settings', [], []),
    'origins': Grid('Code', ['run'], [['a']]),
    'command': '',
  }
  return page.render(**{**content, **changes})


class Reader(html.parser.HTMLParser):
  """Which elements there are, and the texts in them by tag."""

  VOID = ('meta', 'img', 'input', 'link', 'wbr')

  def __init__(self, text: str) -> None:
    super().__init__()
    self.open: list[str] = []
    self.elements: list[tuple[str, dict[str, str | None]]] = []
    self.content: dict[str, list[str]] = {}
    self.feed(text)

  def handle_starttag(
    self, tag: str, attributes: list[tuple[str, str | None]]
  ) -> None:
    self.elements.append((tag, dict(attributes)))
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_endtag(self, tag: str) -> None:
    assert self.open.pop() == tag

  def handle_data(self, data: str) -> None:
    if self.open:
      self.content.setdefault(self.open[-1], []).append(data)

  @property
  def models(self) -> list[dict[str, Any]]:
    """What the viewer is given."""
    (found,) = [t for t in self.content['script'] if t.startswith('[{')]
    return json.loads(found)
