"""Figures of attention, against numbers by hand."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest

from synth_mtf.attention.file import SIDES_OF_STACK
from synth_mtf.errors import UserError
from tests.attention.made import TOKENS, attention
from tests.figures.drawn import legend, panel

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.figures import of_attention, style  # noqa: E402  (needs it)


def titles(figure):
  return [a.get_title() for a in figure.axes if a.axison and a.get_title()]


def test_histograms_have_the_paper_s_layers_and_count_what_is_seen():
  figure = of_attention.histograms([attention(), attention('T5 (V)')])
  assert titles(figure) == [
    f'{s}, layer {n}' for s in SIDES_OF_STACK for n in (1, 3, 5)
  ]
  assert legend(figure) == ['Syn (R)', 'T5 (V)']
  assert '$' not in style.svg(figure)
  # Of a causal row of 1, 1/2 and 1/3 the three sizes are 1, 2 and 3 in 6.
  stairs = panel(figure, 'decoder, layer 3').patches[0]
  values, edges, _ = stairs.get_data()
  np.testing.assert_allclose(values.sum(), 100)
  for weight, share in ((1.0, 1 / 6), (1 / 2, 2 / 6), (1 / 3, 3 / 6)):
    at = min(int(np.searchsorted(edges, weight, 'right')), len(values)) - 1
    np.testing.assert_allclose(values[at], 100 * share)


@pytest.mark.parametrize(
  'layers, given, shown',
  [
    ([2], None, [1, 2]),
    ([5], None, [1, 3, 5]),
    ([2, 5], None, [1, 3, 5]),
    ([12], [2, 12], [2, 12]),
    ([5], [5, 2], [5, 2]),
  ],
)
def test_layers(layers, given, shown):
  """Those of the deepest model."""
  models = [attention(layers=number) for number in layers]
  figure = of_attention.histograms(models, given)
  expected = [f'encoder, layer {number}' for number in shown]
  assert titles(figure)[: len(shown)] == expected


def means(figure, title):
  """The line of the last model in a panel: a point per layer."""
  return panel(figure, title).lines[-1].get_ydata()


def test_entropy_and_distance_of_heads():
  cross = attention('T5 (V)', stacks=['cross'])
  figure = of_attention.heads([cross, attention()])
  expected = {
    'encoder: entropy': np.log(4),
    'encoder: distance': (6 + 4 + 4 + 6) / 16,
    'decoder: entropy': (0 + np.log(2) + np.log(3)) / 3,
    # Rows of a causal sequence: 0; (1 + 0) / 2; (2 + 1 + 0) / 3.
    'decoder: distance': (0 + 0.5 + 1) / 3,
    'cross: entropy': np.log(4),
  }
  assert titles(figure) == list(expected)
  for title, value in expected.items():
    np.testing.assert_allclose(means(figure, title), [value] * 6)
  units = [panel(figure, t).get_ylabel() for t in titles(figure)[:2]]
  assert units == ['nats', 'tokens']
  previous = np.zeros([2, 1, 3, 4, 4])
  for i in range(4):
    previous[:, :, :, i, max(i - 1, 0)] = 1
  figure = of_attention.heads([attention(weights=previous, stacks=['encoder'])])
  np.testing.assert_allclose(means(figure, 'encoder: entropy'), 0)
  np.testing.assert_allclose(means(figure, 'encoder: distance'), 3 / 4)
  signed = attention(weights=-previous, stacks=['encoder'])
  with pytest.raises(UserError, match='has no softmax'):
    of_attention.heads([signed])
  maps = of_attention.heat_maps(signed, 'encoder').axes[0].images
  assert maps[0].get_clim() == (-1, 1)


def test_two_runs_of_a_variant_have_different_names():
  one, other = (
    dataclasses.replace(attention(), run=f'my_runs/{run}') for run in 'ab'
  )
  early = dataclasses.replace(one, step=7)
  looks = [one, early, other, attention('T5 (V)')]
  assert of_attention.names([one, early]) == ['Syn (R)'] * 2
  assert of_attention.names(looks[:3]) == ['Syn (R), a'] * 2 + ['Syn (R), b']
  figure = of_attention.heads(looks[:3])
  assert legend(figure) == [
    'Syn (R), a, step 100',
    'Syn (R), a, step 7',
    'Syn (R), b, step 100',
  ]
  lines = panel(figure, 'encoder: entropy').lines
  colors = {line.get_label(): line.get_color() for line in lines}
  last, first, others = (colors[label] for label in legend(figure))
  assert last == first != others
  maps = of_attention.heat_maps(one, 'encoder', name='Syn (R), a')
  assert maps.get_suptitle() == 'Syn (R), a, step 100, encoder'


def test_heat_maps_have_tokens_and_leave_out_what_is_hidden():
  figure = of_attention.heat_maps(
    attention(), 'decoder', values='logits', layers=[1, 6], heads=[2, 3]
  )
  maps = [a for a in figure.axes if a.images]
  assert titles(figure) == [
    f'layer {n}, head {h}' for n in (1, 6) for h in (2, 3)
  ]
  shown = maps[0].images[0].get_array()
  hidden = np.triu(np.ones((3, 3), bool), 1)
  np.testing.assert_array_equal(np.ma.getmaskarray(shown), hidden)
  np.testing.assert_allclose(shown[0, 0], 1 - 0.3)
  assert maps[0].images[0].get_clim() == pytest.approx((-0.7, 0.7))
  labels = [text.get_text() for text in maps[0].get_yticklabels()]
  assert labels == TOKENS['decoder']
  below = [text.get_text() for text in maps[2].get_xticklabels()]
  assert below == TOKENS['decoder']


@pytest.mark.parametrize('layers', [[1], [1, 6]])
def test_heat_maps_fill_their_figure(layers):
  """Blank bands would appear if it were too tall for its square cells."""
  figure = of_attention.heat_maps(attention(), 'decoder', layers=layers)
  figure.draw_without_rendering()
  maps = [a.get_position() for a in figure.axes if a.images]
  lines = {round(box.y0, 3): box.height for box in maps}
  assert len(lines) == len(layers)
  assert sum(lines.values()) > 0.6


def test_heat_maps_of_one_head_are_half_a_page_wide():
  both = of_attention.heat_maps(attention(), 'encoder')
  one = of_attention.heat_maps(attention(), 'encoder', heads=[1])
  assert one.get_figwidth() == both.get_figwidth() / 2


def test_a_dollar_is_no_formula(tmp_path):
  figure = of_attention.heat_maps(attention(), 'encoder')
  _, svg = style.write(figure, str(tmp_path / 'map'))
  assert '▁$5' in pathlib.Path(svg).read_text(encoding='utf-8')


@pytest.mark.parametrize('name', ['layer', 'head'])
@pytest.mark.parametrize('number', [0, -1, 7])
def test_a_number_that_is_not_there(name, number):
  message = f'there is no {name} {number}; there are 1 to '
  chosen: dict[str, Any] = {f'{name}s': [1, number]}
  with pytest.raises(UserError, match=message):
    of_attention.heat_maps(attention(), 'encoder', **chosen)


def test_a_stack_of_fewer_layers():
  stacks = {
    **attention().stacks,
    **attention(layers=2, stacks=['cross']).stacks,
  }
  one = dataclasses.replace(attention(), stacks=stacks)
  with pytest.raises(UserError, match='the cross has 2 layers'):
    of_attention.heat_maps(one, 'cross', layers=[3])


def test_looks_are_colours_of_models_and_dashes_of_steps():
  figure = of_attention.heads(
    [attention(step=0), attention(step=9), attention('T5 (V)', step=9)]
  )
  assert legend(figure) == [
    'Syn (R), step 0',
    'Syn (R), step 9',
    'T5 (V), step 9',
  ]
  first, last, other = (
    line
    for line in panel(figure, 'cross: entropy').lines
    if not line.get_label().startswith('_')
  )
  assert first.get_color() == last.get_color() != other.get_color()
  assert first.get_linestyle() != last.get_linestyle()
  assert last.get_linestyle() == other.get_linestyle()
