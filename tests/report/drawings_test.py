"""Which figures a page has, and what it says of those that it has not."""

import sys

import pytest

from synth_mtf.report import drawings
from synth_mtf.results import runs
from tests.report import models
from tests.results import made_runs

ALPHA = 'attention/encoder/layer_01/alpha'


@pytest.fixture
def matplotlib():
  pytest.importorskip('matplotlib', reason='the extra [plot]')


@pytest.fixture
def trained(tmp_path):
  """R+V, whose alpha was told, and R; neither was evaluated."""
  heads = [f'{letter}/head_01' for letter in ('R', 'V')]
  made_runs.trained(tmp_path / 'rv', 'random_vanilla')
  made_runs.events(
    tmp_path / 'rv', (20, {f'{ALPHA}/{head}': 0.5 for head in heads})
  )
  made_runs.trained(tmp_path / 'r', 'random')
  return runs.read_all([str(tmp_path / name) for name in ('rv', 'r')])


@pytest.mark.usefixtures('matplotlib')
def test_what_can_be_drawn_is_and_the_rest_is_told(trained):
  found, missing = drawings.draw(trained, [])
  assert [figure.caption for figure in found] == [
    'Learning curves',
    f'alpha over training, Syn (R+V), {trained[0].name}',
  ]
  for figure, text in zip(found, ('training loss', 'encoder, layer 1')):
    assert figure.svg.startswith('<svg') and text in figure.svg
  assert missing == [
    'Not drawn (Score against speed and parameters): no evaluation is in '
    f'{trained[0].name}, {trained[1].name}.'
  ]


@pytest.mark.usefixtures('matplotlib')
def test_attention_is_drawn_where_it_was_looked_at(trained):
  looked = [models.attention('Syn (R)', ['R'], layers=1)]
  found, _ = drawings.draw(trained[1:], looked)
  assert [figure.caption for figure in found] == [
    'Learning curves',
    'How many attention weights are of which size, by stack and layer',
    'How widely (entropy) and how far (distance) each head looks',
  ]


def test_without_matplotlib_there_is_one_reason(trained, monkeypatch):
  for name in list(sys.modules):
    if '.figures' in name:
      monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, 'matplotlib', None)
  found, (reason,) = drawings.draw(trained, [])
  assert found == []
  assert reason.startswith('No figures: figures need matplotlib')
