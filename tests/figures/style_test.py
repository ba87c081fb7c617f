"""The look of figures, and the files that they are written to."""

import pathlib

import pytest

from synth_mtf.errors import UserError
from tests.attention.made import attention
from tests.figures.drawn import legend

pytest.importorskip('matplotlib', reason='the extra [plot]')

from matplotlib.figure import Figure  # noqa: E402  (may be missing)

from synth_mtf.figures import style  # noqa: E402  (needs it)
from synth_mtf.figures.of_attention import histograms  # noqa: E402


@pytest.mark.slow  # draws all
def test_written_as_png_and_svg(tmp_path):
  small = [attention(layers=1)]
  figure = histograms(small)
  paths = style.write(figure, str(tmp_path / 'new' / 'h'))
  png, svg = (pathlib.Path(path).read_bytes() for path in paths)
  assert png.startswith(b'\x89PNG') and len(png) > 10_000
  assert b'<svg' in svg and b'attention weight' in svg
  again = style.write(histograms(small), str(tmp_path / 'again'))
  assert pathlib.Path(again[1]).read_bytes() == svg
  assert style.svg(figure).startswith('<svg')
  assert style.write(figure, paths[0].removesuffix('.png')) == paths


@pytest.mark.parametrize('kind', ['png', 'svg'])
def test_a_figure_of_others_is_not_replaced(tmp_path, kind):
  Figure().savefig(tmp_path / f'h.{kind}')
  before = (tmp_path / f'h.{kind}').read_bytes()
  with pytest.raises(UserError, match=f'h.{kind} exists and is not a file of'):
    style.write(histograms([attention()]), str(tmp_path / 'h'))
  assert (tmp_path / f'h.{kind}').read_bytes() == before


def test_looks_differ_by_colour_and_by_dash_or_marker():
  looks = [style.look(number) for number in range(14)]
  assert len({(x.color, str(x.linestyle), x.marker) for x in looks}) == 14
  assert len({x.color for x in looks[:7]}) == 7


@pytest.mark.parametrize('label', ['Syn (R)', 'Syn (R), cross-attention R'])
def test_the_legend_is_as_wide_as_the_figure_at_most(label):
  labels = [f'{label} {number}' for number in range(7)]
  figure = histograms([attention(one) for one in labels])
  assert legend(figure) == labels
  figure.draw_without_rendering()
  extent = figure.legends[0].get_window_extent()
  assert extent.width <= figure.bbox.width
  (panel, *_) = figure.axes
  assert panel.get_window_extent().y1 <= extent.y0
  assert panel.get_window_extent().height > 0.8 * figure.dpi
