"""Heat maps: what they show, and what they leave out."""

import pathlib

import numpy as np
import pytest

from synth_mtf.errors import UserError
from tests.attention.figures.made import TOKENS, attention

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.attention.figures import heat_maps
from synth_mtf.results.figures import style


def test_heat_maps_have_tokens_and_leave_out_what_is_hidden():
  figure = heat_maps.draw(
    attention(), 'decoder', values='logits', layers=[1, 6], heads=[2, 3]
  )
  maps = [a for a in figure.axes if a.images]
  assert [a.get_title() for a in maps] == [
    f'layer {n}, head {h}' for n in (1, 6) for h in (2, 3)
  ]
  shown = maps[0].images[0].get_array()
  hidden = np.triu(np.ones((3, 3), bool), 1)
  np.testing.assert_array_equal(np.ma.getmaskarray(shown), hidden)
  np.testing.assert_allclose(shown[0, 0], 1 - 0.3)
  labels = [text.get_text() for text in maps[0].get_yticklabels()]
  assert labels == TOKENS['decoder']
  below = [text.get_text() for text in maps[2].get_xticklabels()]
  assert below == TOKENS['decoder']


def test_a_dollar_is_no_formula(tmp_path):
  figure = heat_maps.draw(attention(), 'encoder')
  _, svg = style.write(figure, str(tmp_path / 'map'))
  assert '▁$5' in pathlib.Path(svg).read_text(encoding='utf-8')


def test_a_head_that_is_not_there():
  with pytest.raises(UserError, match='there is no head 4'):
    heat_maps.draw(attention(), 'encoder', heads=[4])
