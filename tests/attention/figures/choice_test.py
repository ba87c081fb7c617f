"""What figures show where nobody has said: stacks, layers, heads."""

import pytest

from tests.attention.figures.made import attention

pytest.importorskip('matplotlib', reason='the extra [plot]')

from synth_mtf.attention.figures import choice


def test_stacks_are_those_of_any_model_in_their_order():
  models = [attention(stacks=['cross']), attention(stacks=['encoder'])]
  assert choice.stacks_of(models) == ['encoder', 'cross']


def test_layers_are_those_of_the_deepest_model():
  models = [attention(layers=2), attention(layers=5)]
  assert choice.layers_shown(models) == [1, 3, 5]
  assert choice.layers_shown(models[:1]) == [1, 2]
  assert choice.layers_shown(models, [5, 2]) == [5, 2]


def test_colours_are_variants_and_dashes_steps():
  named = choice.looks(
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
