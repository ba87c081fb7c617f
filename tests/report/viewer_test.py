"""The attention viewer, in a real browser: what it shows is what there is."""

import dataclasses
import pathlib
import re
import time

import numpy as np
import pytest

from synth_mtf.attention import file as attention_file
from synth_mtf.attention.file import SIDES
from synth_mtf.report import page, weights
from synth_mtf.report.page import Configuration, Page
from synth_mtf.results.printing import Grid, Piece, Row
from tests import browser as browsers
from tests.report import models

pytestmark = pytest.mark.slow  # starts a browser

WIDTHS = (1280, 400)
# Off by rounding to a code, and to the digits that are shown.
OFF = 1 / 510 + 0.0005


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
  with browsers.started(tmp_path_factory.mktemp('browser')) as browser:
    yield browser


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """Three models' .npz, the second with weights that its examples share."""
  folder = tmp_path_factory.mktemp('attention')
  made = {
    'v': models.attention('T5 (V)', ['V'], seed=1),
    'r': models.attention('Syn (R)', ['R'], seed=2, shared=True),
    'rv': models.attention('Syn (R+V)', ['R', 'V'], layers=2, heads=4, seed=3),
  }
  for name, model in made.items():
    attention_file.write(str(folder / f'{name}.npz'), model)
  return [folder / f'{name}.npz' for name in made]


def page_of(attention, path: pathlib.Path) -> pathlib.Path:
  table = Grid('Runs', ['Step'], [Row('T5 (V)', [[Piece('100')]])], [])
  made = Page(
    title='Three models',
    subtitle='',
    summary=table,
    tables=[],
    figures=[],
    weights=weights.pack(attention, 10**7),
    configurations=[Configuration('T5 (V)', f'x = "{"long " * 60}"')],
    notes=[],
    differences=[],
    commands=['synth-mtf report ' + 'my_runs/a_long_name ' * 9],
  )
  path.write_text(page.html(made), encoding='utf-8')
  return path


@pytest.fixture(scope='module')
def path(files, tmp_path_factory):
  read = [attention_file.read(str(file)) for file in files]
  return page_of(read, tmp_path_factory.mktemp('page') / 'report.html')


@pytest.fixture
def opened(browser, path):
  """The browser with the page in it, both panels drawn."""
  browser.complaints()
  browser.requests()
  browser.resize(1280, 900)
  browser.prefer('light')
  show(browser, path)
  yield browser
  assert browser.complaints() == []


def show(browser, path):
  browser.open(path)
  until(lambda: all(reading(browser, panel) for panel in ('left', 'right')))


def until(condition, seconds=20):
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline, 'waited in vain'
    time.sleep(0.02)


def reading(browser, panel):
  return browser.run(
    'return document.querySelector(`#${arguments[0]} output`).textContent',
    panel,
  )


def choose(browser, panel, **choices):
  """Picks from the lists as a person does: one after the other."""
  for name, value in choices.items():
    browser.run(
      'const list = document.getElementById(`${arguments[0]}-${arguments[1]}`);'
      'list.value = arguments[2]; list.dispatchEvent(new Event("change"));',
      panel,
      name,
      str(value),
    )
  settle(browser)


def choose_head(browser, panel, head):
  browser.run(
    'const heads = document.querySelector(`#${arguments[0]} .heads`);'
    'heads.querySelector(`[value="${arguments[1]}"]`).click()',
    panel,
    str(head),
  )
  settle(browser)


def settle(browser):
  """Waits until what was chosen has been unpacked and drawn."""
  browser.run('return new Promise((done) => setTimeout(done, 150))')


def point_at(browser, panel, query, memory):
  """Moves the pointer to the middle of a cell."""
  x, y = browser.run(
    """
    const map = document.querySelector(`#${arguments[0]} .map`);
    map.scrollIntoView({ block: 'center' });
    const cells = map.querySelector('.cells');
    const box = cells.getBoundingClientRect();
    const at = (size, count, i) => ((i + 0.5) * size) / count;
    return [box.left + at(box.width, arguments[3], arguments[2]),
            box.top + at(box.height, arguments[4], arguments[1])];
    """,
    panel,
    query,
    memory,
    columns(browser, panel),
    rows(browser, panel),
  )
  browser.point(x, y)
  settle(browser)


def columns(browser, panel):
  return size(browser, panel)[1]


def rows(browser, panel):
  return size(browser, panel)[0]


def size(browser, panel):
  label = browser.run(
    'return document.querySelector(`#${arguments[0]} .cells`).ariaLabel', panel
  )
  found = re.search(r'(\d+) queries by (\d+) tokens', label)
  assert found
  return int(found[1]), int(found[2])


def shown(browser, panel):
  """The weight that is shown."""
  return float(reading(browser, panel).rpartition(': ')[2])


@pytest.mark.parametrize('stack', list(SIDES))
@pytest.mark.parametrize('model', [0, 1, 2], ids=['V', 'R', 'R+V'])
def test_the_weight_under_the_pointer(opened, files, model, stack):
  """Read beside the .npz, by nothing but NumPy."""
  opened.run('document.querySelector("[name=together]").click()')
  choose(opened, 'left', model=model, stack=stack, layer=1, example=2)
  choose_head(opened, 'left', 3)
  with np.load(files[model]) as arrays:
    queries, memory = (
      [token for token in arrays[f'{side}_tokens'][2] if token]
      for side in SIDES[stack]
    )
    exact = arrays[f'{stack}_weights'][1]
  exact = exact[2 if len(exact) > 1 else 0, 3]
  assert size(opened, 'left') == (len(queries), len(memory))
  for query, key in [(0, 0), (2, 1), (len(queries) - 1, len(memory) - 2)]:
    point_at(opened, 'left', query, key)
    said = reading(opened, 'left')
    assert f' {query + 1} “{queries[query]}” ' in said
    assert f' {key + 1} “{memory[key]}”: ' in said
    assert abs(shown(opened, 'left') - exact[query, key]) < OFF, said


def test_the_keyboard_alone_is_enough(opened, files):
  """From the top of the page: a model, a layer, a head, a cell."""
  reach(opened, 'left-model')
  opened.press('ArrowDown', 'ArrowDown')
  reach(opened, 'left-layer')
  opened.press('ArrowDown')
  settle(opened)
  reach(opened, 'head-left')
  opened.press('ArrowRight', 'ArrowRight')
  settle(opened)
  reach(opened, 'cells')
  opened.press('ArrowDown', 'ArrowDown', 'End', 'ArrowLeft')
  with np.load(files[2]) as arrays:
    tokens = [token for token in arrays['encoder_tokens'][0] if token]
    exact = arrays['encoder_weights'][1, 0, 2, 2, len(tokens) - 2]
  said = reading(opened, 'left')
  assert said.startswith(f'encoder 3 “{tokens[2]}” → encoder ')
  assert abs(shown(opened, 'left') - exact) < OFF, said


def reach(browser, name):
  """Presses Tab until something of this id, name or class has the focus."""
  for _ in range(60):
    browser.press('Tab')
    focus = browser.run(
      'const e = document.activeElement;'
      'return [e.id, e.name, e.className, getComputedStyle(e).outlineStyle]'
    )
    if name in focus[:3]:
      settle(browser)
      return
  raise AssertionError(f'{name} is not reached by Tab')


def test_the_keys_of_the_map(opened):
  reach(opened, 'cells')
  last_query, last_memory = (n for n in size(opened, 'left'))
  for keys, place in [
    (['End'], (1, last_memory)),
    (['PageDown'], (last_query, last_memory)),
    (['ArrowRight', 'ArrowDown'], (last_query, last_memory)),
    (['Home'], (last_query, 1)),
    (['PageUp'], (1, 1)),
    (['ArrowLeft', 'ArrowUp'], (1, 1)),
    (['ArrowRight', 'ArrowDown', 'ArrowDown'], (3, 2)),
  ]:
    opened.press(*keys)
    at = re.fullmatch(
      r'encoder (\d+) .* → encoder (\d+) .*', reading(opened, 'left')
    )
    assert at
    assert (int(at[1]), int(at[2])) == place, keys


def test_both_panels_show_the_same_place_if_asked_to(opened, files):
  assert reading(opened, 'left') != reading(opened, 'right')  # two models
  choose(opened, 'left', stack='cross', layer=2, example=1)
  choose_head(opened, 'left', 4)
  point_at(opened, 'left', 1, 2)
  place, _, _ = reading(opened, 'left').rpartition(': ')
  assert reading(opened, 'right').startswith(place + ': ')
  with np.load(files[1]) as arrays:
    exact = arrays['cross_weights'][2, 0, 4, 1, 2]
  assert abs(shown(opened, 'right') - exact) < OFF
  opened.run('document.querySelector("[name=together]").click()')
  choose(opened, 'right', stack='decoder', layer=0)
  choose_head(opened, 'right', 0)
  assert reading(opened, 'left').startswith(place)
  assert reading(opened, 'right').startswith('decoder')


def test_a_model_with_fewer_layers_and_heads(opened):
  choose(opened, 'left', layer=2)
  choose_head(opened, 'left', 4)
  choose(opened, 'right', model=2)
  state = opened.run(
    'return ["right-layer"].map((id) => document.getElementById(id).value)'
    '.concat(document.querySelector("#right .heads :checked").value)'
  )
  assert state == ['0', '3']
  assert reading(opened, 'right')


def test_the_row_and_alpha_in_words(opened, files):
  choose(opened, 'left', model=2, stack='decoder', layer=1, example=2)
  choose_head(opened, 'left', 1)
  point_at(opened, 'left', 4, 0)
  row, alpha = opened.run(
    'return [".row-of-weights", ".alpha"].map((name) =>'
    'document.querySelector(`#left ${name}`).textContent)'
  )
  with np.load(files[2]) as arrays:
    exact = arrays['decoder_weights'][1, 2, 1, 4]
    tokens = arrays['decoder_tokens'][2]
    shares = arrays['decoder_alpha'][1, 1]
  query, best = (tokens[i] for i in (4, exact.argmax()))
  said = re.match(f'Most of “{query}”: “{best}” ([0-9.]+), ', row)
  assert said
  assert abs(float(said[1]) - exact.max()) < OFF
  assert alpha == f'alpha of this head: R {shares[0]:.3f}, V {shares[1]:.3f}'


def test_colours_follow_the_weights(opened):
  """The darkest pixel of a head is that of its largest weight."""
  choose(opened, 'left', model=0, example=1)
  lightness = """
    const canvas = document.querySelector('#left .cells');
    const [rows, columns] = arguments;
    const { width, height } = canvas;
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    const at = (size, count, i) => Math.floor(((i + 0.15) * size) / count);
    return Array.from({ length: rows }, (_, i) =>
      Array.from({ length: columns }, (_, j) =>
        data[4 * (at(height, rows, i) * width + at(width, columns, j))]));
  """
  drawn = np.array(opened.run(lightness, *size(opened, 'left')))
  model = models.attention('T5 (V)', ['V'], seed=1)
  exact = model.weights('encoder', 1)[0, 0]
  exact, drawn = exact.ravel()[1:], drawn.ravel()[1:]  # the cursor is at 0, 0
  order = exact.argsort()
  assert (np.diff(drawn[order]) <= 1).all()
  opened.prefer('dark')
  settle(opened)
  drawn = np.array(opened.run(lightness, *size(opened, 'left'))).ravel()[1:]
  assert (np.diff(drawn[order]) >= -1).all()
  opened.complaints()  # that pixels were read back


def test_negative_weights_have_a_sign(browser, tmp_path):
  model = models.attention('Syn (R)', ['R'])
  stack = model.stacks['encoder']
  stack = dataclasses.replace(stack, weights=stack.logits)
  model = dataclasses.replace(model, stacks={'encoder': stack})
  browser.resize(1280, 900)
  show(browser, page_of([model], tmp_path / 'report.html'))
  exact = model.weights('encoder', 0)[0, 0]
  query, memory = np.unravel_index(exact.argmin(), exact.shape)
  point_at(browser, 'left', int(query), int(memory))
  off = abs(exact[query]).max() / 254 + 0.0005
  assert abs(shown(browser, 'left') - exact.min()) <= off


@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('width', WIDTHS)
def test_nothing_is_wider_than_the_screen(opened, width, scheme, tmp_path):
  opened.resize(width, 800)
  opened.prefer(scheme)
  settle(opened)
  assert opened.run('return document.documentElement.scrollWidth') == width
  picture = opened.picture()
  (tmp_path / f'{width}_{scheme}.png').write_bytes(picture)
  assert picture.startswith(b'\x89PNG')
  point_at(opened, 'left', 3, 3)
  assert ' 4 ' in reading(opened, 'left')


def test_everything_that_takes_the_focus_shows_it(opened):
  for name in ('left-model', 'cells'):
    reach(opened, name)
    style = opened.run(
      'const s = getComputedStyle(document.activeElement);'
      'return [s.outlineStyle, s.outlineWidth]'
    )
    assert style == ['solid', '3px'], name


def test_the_page_asks_for_nothing_but_itself(opened, path):
  choose(opened, 'left', model=2, stack='cross', layer=1, example=2)
  asked = {one for one in opened.requests() if not one.startswith('chrome:')}
  assert {a for a in asked if not a.startswith('data:')} == {path.as_uri()}


def test_weights_are_unpacked_when_they_are_looked_at(opened):
  """What is decompressed is counted in the page."""
  opened.run(
    'window.count = 0;'
    'const before = window.DecompressionStream;'
    'window.DecompressionStream = class extends before {'
    '  constructor(kind) { super(kind); window.count += 1; } }'
  )
  choose(opened, 'left', layer=1)
  assert opened.run('return window.count') == 2  # one in each panel
  choose(opened, 'left', layer=0)
  assert opened.run('return window.count') == 2  # both are kept
