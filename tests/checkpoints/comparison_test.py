"""How the variables of a model stand to those of a checkpoint."""

import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import comparison
from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError

LAYER = 'encoder/block_000/layer_000/'
OURS, T5 = f'{LAYER}SyntheticAttention/', f'{LAYER}SelfAttention/'


@pytest.fixture
def compare(tmp_path):
  """Compares a model with a checkpoint, both given by names and shapes."""

  def run(of, model, checkpoint):
    path = write(
      str(tmp_path),
      3,
      {n: np.zeros(s, np.float32) for n, s in checkpoint.items()}.items(),
    )
    with tf.Graph().as_default() as graph:
      variables = [tf.get_variable(n, s) for n, s in model.items()]
    given = graph if of is comparison.of_graph else variables
    return of(given, Checkpoint(path))

  return run


def test_weights_are_found_by_the_class_of_their_layer(compare):
  found = compare(
    comparison.of_weights,
    {f'{OURS}q': [2], f'{OURS}random/R': [3], 'x': [4], 'x_slot_v': [4]},
    {f'{T5}q': [2], f'{T5}k': [2], 'x': [4]},
  )
  assert found.loaded == {f'{OURS}q': f'{T5}q', 'x': 'x'}
  assert found.new == [f'{OURS}random/R']
  assert found.left_over == [f'{T5}k']
  assert not found.other
  assert str(found) == (
    f'loaded (2):\n  {OURS}q <- {T5}q\n  x\n'
    f'new (1):\n  {OURS}random/R\n'
    f'left over (1):\n  {T5}k'
  )


def test_what_a_graph_restores_has_the_same_name(compare):
  found = compare(
    comparison.of_graph, {f'{OURS}q': [2], 'x': [4]}, {f'{T5}q': [2], 'x': [4]}
  )
  assert found.loaded == {'x': 'x'}
  assert found.new == [f'{OURS}q']


def test_what_fits_has_no_message(compare):
  variables = {f'{OURS}q': [2], 'x_slot_v': [4]}
  found = compare(comparison.of_graph, variables, variables)
  assert found.message() == ''
  found.insist_on_weights()
  found.insist_on_kinds()


@pytest.mark.parametrize(
  'model, checkpoint, message',
  [
    (
      {'x': [4]},
      {'x': [5]},
      r'x is float32\[5\] in the checkpoint, float32\[4\] in the model',
    ),
    ({'x': [4], 'y': [1]}, {'x': [4]}, 'y is not in it'),
    ({'x': [4]}, {'x': [4], 'a/y': [1]}, 'a/y is not in the model'),
    (
      {'x': [4]},
      {'x': [4], **{f'a{i}/y': [1] for i in range(5)}},
      'a0/y .*; a1/y .*; a2/y .*; and 2 more. Use the variant',
    ),
  ],
)
def test_how_what_is_to_be_resumed_differs(compare, model, checkpoint, message):
  found = compare(comparison.of_graph, model, checkpoint)
  assert re.search(message, found.message())
  assert 'operative_config.gin' in found.message()


def test_one_variable_more_in_a_scope_is_no_other_model(compare):
  """As early T5 checkpoints have, for nothing."""
  found = compare(
    comparison.of_graph, {'a/x': [4]}, {'a/x': [4], 'a/bias': [1]}
  )
  assert found.left_over == ['a/bias']
  assert found.message() == ''


@pytest.mark.parametrize(
  'model, checkpoint, message',
  [
    (
      {f'{OURS}q': [2], f'{OURS}o': [2], f'{OURS}v': [2]},
      {f'{T5}q': [2], f'{T5}o': [2]},
      r'1 variables of the model are not in it \(.*/v\)',
    ),
    (
      {f'{OURS}o': [2]},
      {f'{T5}o': [2], 'encoder/block_001/layer_000/SelfAttention/o': [2]},
      '1 of its variables belong to layers that the model lacks',
    ),
    (
      {f'{OURS}random/R': [2], 'x': [1]},
      {'x': [1]},
      r'1 variables of the model are not in it \(.*random/R\)',
    ),
    ({'x': [2]}, {'y': [2]}, 'are not in it'),
    (
      {f'{OURS}{i}': [2] for i in 'abcdefg'} | {'x': [1]},
      {'x': [1]},
      '/a; .*; and 2 more',
    ),
  ],
)
def test_what_cannot_start_anew_must_be_there(
  compare, model, checkpoint, message
):
  found = compare(comparison.of_weights, model, checkpoint)
  with pytest.raises(UserError, match=f'does not fit this model: .*{message}'):
    found.insist_on_weights()


def test_a_function_of_a_layer_that_is_there_may_start_anew(compare):
  found = compare(
    comparison.of_weights,
    {f'{OURS}o': [2], f'{OURS}random/R': [3], f'{OURS}alpha': [2]},
    {f'{T5}o': [2]},
  )
  assert sorted(found.new) == [f'{OURS}alpha', f'{OURS}random/R']
  found.insist_on_weights()


def test_other_shapes_are_refused(compare):
  found = compare(comparison.of_weights, {'x': [4]}, {'x': [5]})
  with pytest.raises(
    UserError,
    match=r'other shapes or types: x is float32\[4\] in the model, '
    r'float32\[5\] in it.*--resize',
  ):
    found.insist_on_kinds()
