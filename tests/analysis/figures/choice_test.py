"""What figures show where nobody has said: stacks, layers, heads."""

import pytest

from synth_mtf.analysis.figures import choice
from synth_mtf.errors import UserError
from tests.analysis.figures.made import attention


def test_stacks_are_those_of_any_model_in_their_order():
  models = [attention(stacks=['cross']), attention(stacks=['encoder'])]
  assert choice.stacks_of(models) == ['encoder', 'cross']


def test_layers_are_those_of_the_deepest_model():
  models = [attention(layers=2), attention(layers=5)]
  assert choice.layers_shown(models) == [1, 3, 5]
  assert choice.layers_shown(models[:1]) == [1, 2]
  assert choice.layers_shown(models, [5, 2]) == [5, 2]


@pytest.mark.parametrize('number', [0, -1, 4])
def test_they_count_from_one(number):
  assert choice.chosen([3, 1], 3, 'head') == [3, 1]
  message = f'there is no head {number}; there are 1 to 3'
  with pytest.raises(UserError, match=message):
    choice.chosen([1, number], 3, 'head')
