"""The attention viewer in Chromium: it shows the weights it was given."""

import dataclasses
import os
import pathlib
import re
import shutil

import numpy as np
import pytest

from synth_mtf.attention.file import SIDES_OF_STACK
from synth_mtf.report import weights
from tests.attention.made import random_attention
from tests.checkout import CHECKOUT, run
from tests.report.pages import render

pytest.importorskip('selenium')
from selenium import webdriver  # noqa: E402  after it was looked for
from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

pytestmark = pytest.mark.slow  # starts a browser

# Off by rounding to a code, and to the digits that are shown.
OFF = 1 / 510 + 0.0005
OUTLINE = {'outline-style': 'solid', 'outline-width': '3px'}


class Browser(webdriver.Chrome):
  """Chromium without a window, and what the tests do in it."""

  def show(self, path):
    self.get(path.as_uri())
    self.wait(lambda: all(map(self.reading, ('left', 'right'))))

  def wait(self, condition):
    WebDriverWait(self, 300, 0.02).until(lambda _: condition())

  def find(self, selector):
    return self.find_element(By.CSS_SELECTOR, selector)

  def reading(self, panel):
    return self.find(f'#{panel} .reading').text

  def shown(self, panel):
    """The weight that is shown."""
    return float(self.reading(panel).rpartition(': ')[2])

  def size(self, panel):
    label = self.find(f'#{panel} .cells').get_attribute('aria-label')
    found = re.search(r'(\d+) queries by (\d+) tokens', label)
    assert found, label
    return tuple(map(int, found.groups()))

  def choose(self, panel, head=None, **choices):
    """Chooses from the lists, and last a head."""
    heads = {} if head is None else {'head': head}
    for name, value in {**choices, **heads}.items():
      Select(self.find(f'#{panel}-{name}')).select_by_value(str(value))
      self.settle()

  def settle(self):
    """Waits until what was chosen is unpacked and drawn."""
    self.execute_script("""
      const weights = panels.map((panel) => panel.block.weight);
      return Promise.all(weights).then(
        () => new Promise((done) => setTimeout(done, 150)),
      );
    """)

  def point_at(self, panel, query, memory):
    """Moves the pointer to the middle of a cell."""
    cells = self.find(f'#{panel} .cells')
    self.execute_script(
      'arguments[0].scrollIntoView({ block: "center" })',
      self.find(f'#{panel} .map'),
    )
    size = [cells.size['height'], cells.size['width']]
    y, x = (
      round((at + 0.5) * pixels / count - pixels / 2)
      for at, pixels, count in zip(
        (query, memory), size, self.size(panel), strict=True
      )
    )
    ActionChains(self, 0).move_to_element_with_offset(cells, x, y).perform()
    self.settle()

  def press(self, *keys, held=None):
    chain = ActionChains(self, 0)
    if held:
      chain.key_down(held).send_keys(*keys).key_up(held)
    else:
      chain.send_keys(*keys)
    chain.perform()
    self.settle()

  def reach(self, name):
    """Presses Tab until this id, name or class has the focus and shows it."""
    for _ in range(60):
      ActionChains(self, 0).send_keys(Keys.TAB).perform()
      focus = self.switch_to.active_element
      if name in [focus.get_attribute(a) for a in ('id', 'name', 'class')]:
        outline = map(focus.value_of_css_property, OUTLINE)
        assert dict(zip(OUTLINE, outline, strict=True)) == OUTLINE
        return
    raise AssertionError(f'{name} is not reached by Tab')

  def resize(self, width, height):
    size = {'width': width, 'height': height}
    self.execute_cdp_cmd(
      'Emulation.setDeviceMetricsOverride',
      {**size, 'deviceScaleFactor': 1, 'mobile': False},
    )


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
  """Chromium; skips the tests where it cannot be installed."""
  folder = tmp_path_factory.mktemp('browser')
  done = run(CHECKOUT / '.ci' / 'install_browser', timeout=1500, check=False)
  if done.returncode:
    pytest.skip(f'no browser: {done.stderr.strip()}')
  options = webdriver.ChromeOptions()
  options.binary_location = shutil.which('chromium')
  for argument in (
    '--headless=new',
    '--no-sandbox',  # whose processes root may not start
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--hide-scrollbars',
    f'--user-data-dir={folder / "profile"}',
  ):
    options.add_argument(argument)
  options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
  service = webdriver.ChromeService(
    shutil.which('chromedriver'),
    env={**os.environ, 'HOME': str(folder), 'TMPDIR': str(folder)},
  )
  with Browser(options, service) as browser:
    yield browser


@pytest.fixture(scope='module')
def shown():
  """Three models; the examples of the second share their weights."""
  return [
    random_attention('T5 (V)', 'V', seed=1),
    random_attention(seed=2, shared=True),
    random_attention('Syn (R+V)', 'RV', layers=2, heads=4, seed=3),
  ]


def page_of(attentions, folder: pathlib.Path) -> pathlib.Path:
  text = render(
    models=weights.pack(attentions),
    configurations=[('T5 (V)', f'x = "{"long " * 60}"')],
    command='synth-mtf report ' + 'my_runs/a_long_name ' * 9,
  )
  path = folder / 'report.html'
  path.write_text(text, encoding='utf-8')
  return path


@pytest.fixture(scope='module')
def path(shown, tmp_path_factory):
  return page_of(shown, tmp_path_factory.mktemp('page'))


@pytest.fixture
def opened(browser, path):
  """The browser with the page in it, both panels drawn."""
  browser.get_log('browser')
  browser.resize(1280, 900)
  browser.show(path)
  yield browser
  assert browser.get_log('browser') == []


@pytest.mark.parametrize('stack', list(SIDES_OF_STACK))
@pytest.mark.parametrize('model', [0, 1, 2], ids=['V', 'R', 'R+V'])
def test_the_weight_under_the_pointer(opened, shown, model, stack):
  opened.find('[name=together]').click()
  opened.choose('left', 3, model=model, stack=stack, layer=1, example=2)
  queries, memory = shown[model].axes(stack, 2)
  exact = shown[model].weights(stack, 2)[1, 3]
  assert opened.size('left') == (len(queries), len(memory))
  for query, key in [(0, 0), (2, 1), (len(queries) - 1, len(memory) - 2)]:
    opened.point_at('left', query, key)
    reading = opened.reading('left')
    assert f' {query + 1} “{queries[query]}” ' in reading
    assert f' {key + 1} “{memory[key]}”: ' in reading
    assert abs(opened.shown('left') - exact[query, key]) < OFF, reading


# The middle of each label along its axis, and of the cells that it is for.
_MIDDLES = """
const panel = document.querySelector('#left');
const cells = panel.querySelector('.cells').getBoundingClientRect();
const middles = (side, begin, size) =>
  [...panel.querySelectorAll(side + ' span')].map((label) => {
    const box = label.getBoundingClientRect();
    return box[begin] + box[size] / 2 - cells[begin];
  });
return {
  columns: [middles('.columns', 'left', 'width'), cells.width],
  rows: [middles('.rows', 'top', 'height'), cells.height],
};
"""


@pytest.mark.parametrize('size', [(1280, 900), (1280, 300), (500, 1400)])
@pytest.mark.parametrize('length', [5, 20, 60])
def test_each_label_stands_beside_its_cells(browser, tmp_path, size, length):
  attention = random_attention(seed=4, length=length)
  browser.resize(*size)
  browser.show(page_of([attention], tmp_path))
  for side, (middles, extent) in browser.execute_script(_MIDDLES).items():
    cell = extent / len(middles)
    expected = (np.arange(len(middles)) + 0.5) * cell
    np.testing.assert_allclose(middles, expected, atol=1, err_msg=side)


def test_the_keyboard_alone_is_enough(opened, shown):
  """From the top of the page: a model, a layer, a head, a cell."""
  opened.reach('left-model')
  opened.press(Keys.DOWN, Keys.DOWN)
  opened.reach('left-layer')
  opened.press(Keys.DOWN)
  opened.reach('left-head')
  opened.press(Keys.DOWN, Keys.DOWN)
  opened.reach('cells')
  opened.press(Keys.DOWN, Keys.DOWN, Keys.END, Keys.LEFT)
  tokens = shown[2].tokens_of('encoder', 0)
  exact = shown[2].weights('encoder', 0)[1, 2, 2, len(tokens) - 2]
  reading = opened.reading('left')
  assert reading.startswith(f'encoder 3 “{tokens[2]}” → encoder ')
  assert abs(opened.shown('left') - exact) < OFF, reading


def test_the_keys_of_the_map(opened):
  opened.reach('cells')
  last_query, last_memory = opened.size('left')
  for held, keys, place in [
    (None, [Keys.END], (1, last_memory)),
    (None, [Keys.HOME], (1, 1)),
    (None, [Keys.LEFT, Keys.UP], (1, 1)),
    (Keys.CONTROL, [Keys.END], (last_query, last_memory)),
    (None, [Keys.RIGHT, Keys.DOWN], (last_query, last_memory)),
    (Keys.CONTROL, [Keys.HOME], (1, 1)),
    (None, [Keys.RIGHT, Keys.DOWN, Keys.DOWN], (3, 2)),
  ]:
    opened.press(*keys, held=held)
    reading = opened.reading('left')
    at = re.fullmatch(r'encoder (\d+) .* → encoder (\d+) .*', reading)
    assert at, reading
    assert (int(at[1]), int(at[2])) == place, keys


def test_both_panels_show_the_same_place_if_asked_to(opened, shown):
  assert opened.reading('left') != opened.reading('right')  # two models
  opened.choose('left', 4, stack='cross', layer=2, example=1)
  opened.point_at('left', 1, 2)
  place, _, _ = opened.reading('left').rpartition(': ')
  assert opened.reading('right').startswith(place + ': ')
  exact = shown[1].weights('cross', 1)[2, 4, 1, 2]
  assert abs(opened.shown('right') - exact) < OFF
  opened.find('[name=together]').click()
  opened.choose('right', 0, stack='decoder', layer=0)
  assert opened.reading('left').startswith(place)
  assert opened.reading('right').startswith('decoder')


def test_a_model_with_fewer_layers_and_heads(opened):
  opened.choose('left', 4, layer=2)
  opened.choose('right', model=2)
  assert opened.find('#right-layer').get_attribute('value') == '0'
  assert opened.find('#right-head').get_attribute('value') == '0'
  assert opened.reading('right')


def test_the_row_and_alpha_in_words(opened, shown):
  opened.choose('left', 1, model=2, stack='decoder', layer=1, example=2)
  opened.point_at('left', 4, 0)
  exact = shown[2].weights('decoder', 2)[1, 1, 4]
  tokens = shown[2].tokens_of('decoder', 2)
  shares = shown[2].stacks['decoder'].alpha[1, 1]
  query, best = (tokens[i] for i in (4, exact.argmax()))
  row = opened.find('#left .largest').text
  largest = re.match(f'Most of “{query}”: “{best}” ([0-9.]+), ', row)
  assert largest, row
  assert abs(float(largest[1]) - exact.max()) < OFF
  alpha = f'Alpha of this head: R {shares[0]:.3f}, V {shares[1]:.3f}'
  assert opened.find('#left .alpha').text == alpha
  opened.choose('left', model=0)
  assert opened.find('#left .alpha').text == ''


def redness(browser):
  """The red of each weight of the left map, on white."""
  script = """
    const { width, height } = document.querySelector('#left .cells');
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext('2d');
    context.fillStyle = 'white';
    context.fillRect(0, 0, width, height);
    context.drawImage(document.querySelector('#left .cells'), 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    return Array.from(data).filter((_, i) => i % 4 == 0);
  """
  return np.array(browser.execute_script(script))


def test_colours_follow_the_weights(opened, shown):
  """The darkest pixel of a head is that of its largest weight."""
  opened.choose('left', model=0, example=1)
  exact = shown[0].weights('encoder', 1)[0, 0].ravel()
  order = exact.argsort()
  light = redness(opened)[order]
  assert (np.diff(light) <= 1).all() and light[0] > 200 > 20 > light[-1]


def test_a_dark_page_has_a_dark_map(opened):
  opened.choose('left', model=0, example=1)
  light = redness(opened)
  feature = {'name': 'prefers-color-scheme', 'value': 'dark'}
  emulate = 'Emulation.setEmulatedMedia'
  opened.execute_cdp_cmd(emulate, {'features': [feature]})
  try:
    opened.wait(lambda: redness(opened)[light.argmin()] == 0xBC)
    script = "return getComputedStyle(document.querySelector('.cells'))"
    background = opened.execute_script(f'{script}.backgroundColor')
    assert background == 'rgb(32, 32, 32)'
  finally:
    opened.execute_cdp_cmd(emulate, {'features': []})
  opened.wait(lambda: (redness(opened) == light).all())


def test_negative_weights_have_a_sign(browser, tmp_path):
  model = random_attention()
  stack = model.stacks['encoder']
  stack = dataclasses.replace(stack, weights=stack.logits)
  model = dataclasses.replace(model, stacks={'encoder': stack})
  browser.resize(1280, 900)
  browser.show(page_of([model], tmp_path))
  exact = model.weights('encoder', 0)[0, 0]
  query, memory = np.unravel_index(exact.argmin(), exact.shape)
  browser.point_at('left', int(query), int(memory))
  off = abs(exact[query]).max() / 254 + 0.0005
  assert abs(browser.shown('left') - exact.min()) <= off
  ends = [browser.find(f'#left .{end}').text for end in ('least', 'most')]
  assert float(ends[0]) == -float(ends[1]) < 0


@pytest.mark.parametrize('width', [1280, 400])
def test_nothing_is_wider_than_the_screen(opened, width):
  opened.resize(width, 800)
  opened.settle()
  script = 'return document.documentElement.scrollWidth'
  assert opened.execute_script(script) == width
  opened.point_at('left', 3, 3)
  assert ' 4 ' in opened.reading('left')
