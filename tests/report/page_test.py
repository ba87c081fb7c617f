"""The page: one file, whose text is text."""

import html.parser
import json

from synth_mtf.report import page, weights
from synth_mtf.report.page import (
  Configuration,
  Difference,
  Figure,
  Page,
)
from synth_mtf.results.printing import Grid, Piece, Row
from tests.report import models

EVIL = '</script></pre><script>alert("x")</script>'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 1"></svg>'


def a_page(**changes):
  packed = weights.pack([models.attention('Syn (R)', ['R'])], 10**9)
  table = Grid(
    'GLUE',
    ['CoLA'],
    [Row(f'Syn {EVIL}', [[Piece('12.5', best=True)]])],
    [f'n: {EVIL}'],
  )
  return Page(
    **{
      'title': 'Two runs',
      'subtitle': 'my_runs/a my_runs/b',
      'summary': table,
      'tables': [table],
      'figures': [Figure(f'Loss {EVIL}', SVG)],
      'weights': packed,
      'configurations': [Configuration('a', f'x = "{EVIL}"')],
      'differences': [Difference('run.seed', ['1', None])],
      'notes': [f'No attention: {EVIL}'],
      'commands': [f'synth-mtf report {EVIL}'],
      **changes,
    }
  )


class Reader(html.parser.HTMLParser):
  """Which elements there are, and what stands in them."""

  VOID = ('meta', 'img', 'input', 'link')

  def __init__(self, text):
    super().__init__()
    self.open, self.elements, self.content = [], [], {}
    self.feed(text)

  def handle_starttag(self, tag, attributes):
    self.elements.append((tag, dict(attributes)))
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    if self.open:
      self.content.setdefault(self.open[-1], []).append(data)

  def all(self, tag):
    return [attributes for name, attributes in self.elements if name == tag]


def test_every_element_is_closed_and_every_text_is_text():
  made = Reader(page.html(a_page()))
  assert made.open == []
  assert len(made.content['td']) > 0
  texts = [text for tag in ('th', 'pre', 'p') for text in made.content[tag]]
  assert sum(EVIL in text for text in texts) >= 5
  assert not any('alert' in text for text in made.content['script'])


def test_it_asks_for_no_other_file():
  text = page.html(a_page())
  made = Reader(text)
  for tag, attributes in made.elements:
    for name in ('src', 'href'):
      address = attributes.get(name) or ''
      assert address.startswith(('#', 'data:')) or not address, tag
  assert 'url(' not in text
  assert '@import' not in text
  (policy,) = [
    m['content']
    for m in made.all('meta')
    if m.get('http-equiv') == 'Content-Security-Policy'
  ]
  assert policy.startswith("default-src 'none';")
  assert 'http' not in policy


def test_what_is_not_there_has_no_section():
  ids = {
    a.get('id')
    for _, a in Reader(
      page.html(a_page(tables=[], figures=[], weights=None))
    ).elements
  }
  assert {'summary', 'configuration', 'commands'} <= ids
  assert not ids & {'tables', 'figures', 'attention', 'models'}


def test_the_weights_are_beside_the_index():
  given = a_page()
  made = Reader(page.html(given))
  blocks = {
    a['id']: (a['data-queries'], a['data-memory'])
    for a in made.all('script')
    if a.get('type') == 'text/plain'
  }
  assert blocks == {
    f'weights-{b.name}': (str(b.queries), str(b.memory))
    for b in given.weights.blocks
  }
  (index,) = [t for t in made.content['script'] if t.startswith('[{')]
  assert json.loads(index) == list(given.weights.index)


def test_the_best_is_marked():
  row = Row('a', [[Piece('1'), Piece('2', best=True)], [Piece('-')]])
  made = page.html(a_page(tables=[], summary=Grid('T', ['x', 'y'], [row], [])))
  assert '<td class="number">1/<strong>2</strong></td>' in made
  assert '<td class="number">-</td>' in made


def test_where_ends_were_left_out_the_page_says_so():
  model = models.attention('T5 (V)', ['V'], lengths=70)
  size = sum(len(b.text) for b in weights.pack([model], 10**9).blocks)
  less = weights.pack([model], size // 2)
  cut = page.html(a_page(weights=less))
  assert f'the first {less.length} tokens are shown' in cut
  assert 'tokens are shown' not in page.html(a_page())
