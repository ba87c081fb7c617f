"""Figures and tables of the page in Chromium, on wide and narrow screens."""

import pytest

from synth_mtf.report import page
from synth_mtf.results.printing import Grid
from tests.report.pages import render
from tests.report.viewer_test import browser
from tests.results.made_runs import fake, result

pytest.importorskip('matplotlib', reason='the extra [plot]')
pytestmark = pytest.mark.slow  # starts a browser

__all__ = ['browser']  # a fixture
SIZES = [(1280, 900), (800, 900), (400, 900)]


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  runs = [
    fake(
      label,
      *[
        result(task='synth_a', value=70.0 + step, step=step) for step in (1, 2)
      ],
      label=label,
      losses={'': {1: loss, 100: loss / 2, 200: loss / 4}},
      gin='',
    )
    for label, loss in (('Syn (R)', 8.0), ('T5 (V)', 4.0))
  ]
  drawn, _ = page.draw(runs, [])
  names = 'Model GLUE CoLA SST MRPC STSB QQP MNLI QNLI GLUE_RTE SQuAD SuperGLUE'
  names += ' BoolQ CB CoPA MultiRC ReCoRD SuperGLUE_RTE WiC WSC Log_ppl Steps/s'
  headers = [name.replace('_', ' ') for name in f'{names} Params'.split()]
  two = ('MRPC', 'STSB', 'QQP', 'MNLI', 'SQuAD', 'CB', 'MultiRC', 'ReCoRD')
  cells = ['51.4/-43.8' if name in two else '100.0' for name in headers[1:]]
  rows = [[run.label, *cells] for run in runs]
  text = render(tables=[Grid('GLUE', headers, rows)], figures=drawn)
  path = tmp_path_factory.mktemp('page') / 'report.html'
  path.write_text(text, encoding='utf-8')
  return path


@pytest.fixture
def opened(browser, path):
  def open_at(width, height, scheme='light'):
    browser.resize(width, height)
    feature = {'name': 'prefers-color-scheme', 'value': scheme}
    browser.execute_cdp_cmd(
      'Emulation.setEmulatedMedia', {'features': [feature]}
    )
    browser.get(path.as_uri())
    return browser

  browser.get_log('browser')
  yield open_at
  browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': []})
  assert browser.get_log('browser') == []


@pytest.mark.parametrize('size', SIZES)
def test_models_stay_in_view_and_the_page_does_not_scroll(opened, size):
  page_width, cells, beside = opened(*size).execute_script("""
    const wide = document.querySelector('.wide');
    wide.scrollLeft = 1e6;
    const row = wide.querySelectorAll('tr')[1].children;
    const box = (element) => element.getBoundingClientRect();
    return [
      document.documentElement.scrollWidth,
      [...row].filter((cell) => box(cell).left >= box(row[0]).right - 1).length,
      box(row[0]).left - box(wide).left,
    ];
  """)
  assert page_width <= size[0]
  assert abs(beside) < 1
  assert cells >= 3


def test_a_whole_table_of_benchmarks_fits_a_laptop(opened):
  hidden = opened(1280, 900).execute_script("""
    const wide = document.querySelector('.wide');
    return wide.scrollWidth - wide.clientWidth;
  """)
  assert hidden == 0


_POINT = """
const figure = document.querySelector('figure');
const image = figure.querySelector('img');
const { lines } = JSON.parse(figure.dataset.panels)[0];
const [left, above] = lines[0].points[1];
const box = image.getBoundingClientRect();
const at = {
  clientX: box.left + left * box.width,
  clientY: box.top + above * box.height,
};
image.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, ...at }));
return figure.querySelector('output').textContent;
"""


@pytest.mark.parametrize('size', SIZES)
def test_the_value_under_the_pointer(opened, size):
  reading = opened(*size).execute_script(_POINT)
  assert reading == 'training loss: Syn (R), 100: 4'


def test_the_place_of_a_point_is_where_it_is_drawn():
  run = fake('a', label='Syn (R)', losses={'': {0: 1.0, 100: 3.0}}, gin='')
  (drawn, *_), _ = page.draw([run], [])
  (panel,) = drawn.panels
  (line,) = panel['lines']
  (left, low, *_), (right, high, x, y) = line['points']
  assert 0 < left < right < 1 and 0 < high < low < 1
  assert (x, y) == ('100', '3')
  width = 72 * 6.5
  drawn_at = f'{right * width:.0f}'
  assert f'L {drawn_at}.' in drawn.svg or f'"{drawn_at}.' in drawn.svg


def test_a_click_enlarges_and_the_next_one_does_not(opened):
  browser = opened(1280, 900)
  widths = [browser.find('figure').size['width']]
  for _ in range(2):
    browser.find('figure button').click()
    widths.append(browser.find('figure').size['width'])
  assert widths[1] > 1.8 * widths[0] and widths[2] == widths[0]


@pytest.mark.parametrize('scheme, is_dark', [('light', False), ('dark', True)])
def test_dark_mode(opened, scheme, is_dark):
  colours = opened(1280, 900, scheme).execute_script("""
    const style = getComputedStyle(document.body);
    const cell = getComputedStyle(document.querySelector('tr > :first-child'));
    return [style.backgroundColor, cell.backgroundColor, style.color];
  """)
  background, cell, text = (
    sum(map(int, colour.strip('rgb()').split(', '))) for colour in colours
  )
  assert background == cell
  assert (background < 100 and text > 600) == is_dark
