"""Figures: what they say, and that each can be drawn and written."""

import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

from synth_mtf.analysis.alphas import Path
from synth_mtf.analysis.attention_file import SIDES, Attention, Stack
from synth_mtf.analysis.records import Result
from synth_mtf.errors import UserError

matplotlib = pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.analysis.figures import (  # noqa: E402  after what it needs
  alpha,
  curves,
  heads,
  heat_maps,
  histograms,
  scores,
  seeds,
  style,
)

TOKENS = {
  'encoder': ['▁The', '▁red', '▁$5', '</s>'],
  'decoder': ['<s>', '▁das', '▁rote'],
}


def attention(label='Syn (R)', step=100, layers=6, weights=None, stacks=SIDES):
  """Weights that are even where nothing else is said."""
  made = {}
  for name in stacks:
    n, m = (len(TOKENS[side]) for side in SIDES[name])
    even = np.ones([layers, 1, 3, n, m])
    if name == 'decoder':
      even = np.tril(even)
    even /= even.sum(-1, keepdims=True)
    made[name] = Stack(even if weights is None else weights, even - 0.3)
  return Attention(
    'runs/x',
    label,
    step,
    made,
    {side: np.array([tokens]) for side, tokens in TOKENS.items()},
    {side: np.array(['text']) for side in TOKENS},
  )


def result(task, metric, value, step):
  return Result(task, 'validation', metric, value, 10, 'example', None, step)


def run(label, loss=(), results=(), speed=None, parameters=None, **bindings):
  return types.SimpleNamespace(
    name='/'.join(['runs', label, *bindings.values()]),
    label=label,
    bindings={'d_model': '64', **bindings},
    curves={'loss': np.array(loss)} if len(loss) else {},
    results=list(results),
    steps_per_second=speed,
    parameters=parameters,
  )


def panel(figure, title):
  (found,) = [a for a in figure.axes if a.get_title() == title]
  return found


def legend(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.slow  # draws all
def test_written_as_png_and_svg(tmp_path):
  figure = histograms.draw([attention()])
  paths = style.write(figure, str(tmp_path / 'new' / 'h'))
  png, svg = (pathlib.Path(path).read_bytes() for path in paths)
  assert png.startswith(b'\x89PNG') and len(png) > 10_000
  assert b'<svg' in svg and b'attention weight' in svg
  again = style.write(histograms.draw([attention()]), str(tmp_path / 'again'))
  assert pathlib.Path(again[1]).read_bytes() == svg
  assert style.svg(figure).startswith('<svg')


def test_a_place_that_cannot_be_written(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='cannot be written'):
    style.write(histograms.draw([attention()]), str(tmp_path / 'file' / 'h'))


def test_looks_differ_by_colour_and_by_dash_or_marker():
  looks = [style.look(number) for number in range(14)]
  assert len({(x.color, str(x.linestyle), x.marker) for x in looks}) == 14
  assert len({x.color for x in looks[:7]}) == 7
  named = style.looks(
    [attention(step=0), attention(step=9), attention('T5 (V)', step=9)]
  )
  assert [name for name, _ in named] == [
    'Syn (R), step 0',
    'Syn (R), step 9',
    'T5 (V), step 9',
  ]
  (_, first), (_, last), (_, other) = named
  assert first.color == last.color != other.color
  assert first.linestyle != last.linestyle == other.linestyle


def test_histograms_have_the_paper_s_layers_and_count_what_is_seen():
  figure = histograms.draw([attention(), attention('T5 (V)')])
  titles = [a.get_title() for a in figure.axes]
  assert titles == [f'{s}, layer {n}' for s in SIDES for n in (1, 3, 5)]
  assert legend(figure) == ['Syn (R)', 'T5 (V)']
  # Of a causal row of 1, 1/2 and 1/3 the three sizes are 1, 2 and 3 in 6.
  stairs = panel(figure, 'decoder, layer 3').patches[0]
  values, edges, _ = stairs.get_data()
  np.testing.assert_allclose(values.sum(), 100)
  for weight, share in ((1.0, 1 / 6), (1 / 2, 2 / 6), (1 / 3, 3 / 6)):
    at = min(int(np.searchsorted(edges, weight, 'right')), len(values)) - 1
    np.testing.assert_allclose(values[at], 100 * share)


@pytest.mark.parametrize(
  'layers, given, shown',
  [(2, None, [1, 2]), (5, None, [1, 3, 5]), (12, [2, 12], [2, 12])],
)
def test_layers(layers, given, shown):
  figure = histograms.draw([attention(layers=layers)], given)
  titles = [a.get_title() for a in figure.axes[: len(shown)]]
  assert titles == [f'encoder, layer {number}' for number in shown]


def test_a_layer_that_is_not_there():
  with pytest.raises(UserError, match='there is no layer 7; there are 1 to 6'):
    histograms.draw([attention()], [7])
  with pytest.raises(UserError, match='there is no head 4'):
    heat_maps.draw(attention(), 'encoder', heads=[4])


def test_entropy_and_distance():
  even = attention()
  np.testing.assert_allclose(heads.entropy(even, 'encoder'), np.log(4))
  np.testing.assert_allclose(heads.entropy(even, 'cross'), np.log(4))
  np.testing.assert_allclose(
    heads.entropy(even, 'decoder'), (0 + np.log(2) + np.log(3)) / 3
  )
  # Rows of a causal sequence: 0; (1 + 0) / 2; (2 + 1 + 0) / 3.
  np.testing.assert_allclose(heads.distance(even, 'decoder'), (0 + 0.5 + 1) / 3)
  previous = np.zeros([2, 1, 3, 4, 4])
  for i in range(4):
    previous[:, :, :, i, max(i - 1, 0)] = 1
  one = attention(weights=previous, stacks=['encoder'])
  np.testing.assert_allclose(heads.entropy(one, 'encoder'), 0)
  np.testing.assert_allclose(heads.distance(one, 'encoder'), 3 / 4)


def test_heads():
  figure = heads.draw([attention(), attention('T5 (V)')])
  assert [a.get_title() for a in figure.axes if a.axison] == [
    'encoder: entropy',
    'encoder: distance',
    'decoder: entropy',
    'decoder: distance',
    'cross: entropy',
  ]


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


def test_alpha():
  values = np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.7, 0.3], [0.9, 0.1]]])
  path = Path('encoder', 1, ['R', 'V'], np.array([0, 100]), values)
  figure = alpha.draw('Syn (R+V)', [path])
  lines = panel(figure, 'encoder, layer 1').lines
  mean = [line for line in lines if line.get_label() == 'R'][0]
  np.testing.assert_allclose(mean.get_ydata(), [0.5, 0.8])
  assert len(lines) == 2 * (2 + 1)
  assert legend(figure) == ['R', 'V']
  with pytest.raises(UserError, match='mixes no functions'):
    alpha.draw('Syn (R)', [])


def test_curves_are_means_over_seeds_in_a_band():
  runs = [
    run('Syn (R)', [(0, 4), (10, 2), (20, 1)]),
    run('Syn (R)', [(0, 6), (10, 4)]),  # still being written
    run('T5 (V)', [(0, 5), (10, 1)]),
  ]
  figure = curves.draw(runs)
  of_loss = panel(figure, 'training loss')
  np.testing.assert_allclose(of_loss.lines[0].get_xydata(), [(0, 5), (10, 3)])
  assert len(of_loss.collections) == 1  # of what has two seeds
  assert legend(figure) == ['Syn (R)', 'T5 (V)']
  spread = seeds.band([{0: 4, 1: 2}, {0: 6, 1: 2}]).spread
  np.testing.assert_allclose(spread, [2**0.5, 0])


def test_what_was_trained_in_another_way_is_another_curve():
  runs = [
    run('Syn (R)', [(0, 4), (10, 2)], d_ff='8', seed='0'),
    run('Syn (R)', [(0, 6), (10, 4)], d_ff='16', seed='0'),
    run('Syn (R)', [(0, 8), (10, 4)], d_ff='16', seed='1'),
  ]
  lines = panel(curves.draw(runs), 'training loss').lines
  assert [line.get_ydata()[0] for line in lines] == [4, 7]


def test_curves_of_scores_and_of_log_perplexity():
  results = [
    result('cola', 'accuracy', value, step)
    for step, value in ((100, 50.0), (200, None), (300, 70.0))
  ]
  results += [result('c4', 'neg_log_perplexity', -3 + s, s) for s in (0, 1)]
  figure = curves.draw([run('Syn (R)', results=results)])
  of_task = panel(figure, 'cola\naccuracy').lines[0]
  np.testing.assert_allclose(of_task.get_xydata(), [(100, 50), (300, 70)])
  perplexity = panel(figure, 'c4\nlog perplexity').lines[0]
  np.testing.assert_allclose(perplexity.get_xydata(), [(0, 3), (1, 2)])


def test_nothing_to_draw():
  nothing = [run('Syn (R)', [(0, 4)])]
  with pytest.raises(UserError, match='no curve has two points.*runs/Syn'):
    curves.draw(nothing)
  with pytest.raises(UserError, match='no evaluation is in runs/Syn'):
    scores.draw(nothing)


def test_scores_are_means_inside_a_task_first():
  results = [
    result('cola', 'matthews', 0.0, 100),  # an earlier step
    result('cola', 'matthews', 10.0, 200),
    result('mrpc', 'f1', 20.0, 200),
    result('mrpc', 'accuracy', 40.0, 200),
  ]
  one = run('Syn (R)', results=results, speed=2.0, parameters=3_000_000)
  assert scores.score(one) == 20.0
  figure = scores.draw([one, run('T5 (V)', results=results[1:2], speed=1.0)])
  left, right = figure.axes
  assert left.get_ylabel() == 'score'
  assert [text.get_text() for text in left.texts] == ['Syn (R)', 'T5 (V)']
  # Of the second, the number of parameters is not known.
  assert [text.get_text() for text in right.texts] == ['Syn (R)']
  assert right.texts[0].xy == (3.0, 20.0)


def test_log_perplexity_where_there_are_no_scores():
  results = [result('c4', 'neg_log_perplexity', -1.5, 7)]
  figure = scores.draw([run('Syn (R)', results=results, speed=1.0)])
  assert figure.axes[0].get_ylabel() == 'log perplexity'
  assert figure.axes[0].texts[0].xy == (1.0, 1.5)


@pytest.mark.slow
def test_without_matplotlib_there_is_one_message():
  done = subprocess.run(
    [
      sys.executable,
      '-c',
      'import sys; sys.modules["matplotlib"] = None\n'
      'from synth_mtf import cli\n'
      'sys.exit(cli.main(["plot", "x.npz", "--out", "x"]))',
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 2
  assert "pip install -c constraints.txt '.[plot]'" in done.stderr
  assert 'Traceback' not in done.stderr
