"""How the variables of a model compare with those of a checkpoint."""

import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.checkpoints import comparison
from synth_mtf.checkpoints.files import Checkpoint, write
from synth_mtf.errors import UserError

LAYER = 'encoder/block_000/layer_000/'
OURS, T5 = f'{LAYER}SyntheticAttention/', f'{LAYER}SelfAttention/'


def made(folder, model, checkpoint):
  """Variables and a checkpoint, of names and shapes."""
  values = {n: np.zeros(s, np.float32) for n, s in checkpoint.items()}
  path = write(str(folder), 3, values.items())
  with tf.Graph().as_default():
    return [tf.get_variable(n, s) for n, s in model.items()], Checkpoint(path)


@pytest.fixture
def compare(tmp_path):
  def run(model, checkpoint):
    variables, checkpoint = made(tmp_path, model, checkpoint)
    return comparison.Comparison(comparison.kinds_of(variables), checkpoint)

  return run


def test_weights_are_found_by_the_class_of_their_layer(compare):
  found = compare(
    {f'{OURS}q': [2], f'{OURS}random/R': [3], 'x': [4]},
    {f'{T5}q': [2], f'{T5}k': [2], 'x': [4], 'x_slot_v': [4]},
  )
  assert found.loaded == {f'{OURS}q': f'{T5}q', 'x': 'x'}
  assert found.new == [f'{OURS}random/R']
  assert found.left_over == [f'{T5}k']
  assert not found.different
  assert str(found) == (
    f'loaded (2):\n  {OURS}q <- {T5}q\n  x\n'
    f'new (1):\n  {OURS}random/R\n'
    f'left over (1):\n  {T5}k'
  )


@pytest.mark.parametrize(
  'model, checkpoint, message',
  [
    (
      {'x': [4]},
      {'x': [5]},
      r'x is float32\[5\] in the checkpoint, float32\[4\] in the model',
    ),
    ({'x': [4], 'y': [1]}, {'x': [4]}, 'y is not in it'),
    ({'x': [4], 'x_slot_v': [4]}, {'x': [4]}, 'x_slot_v is not in it'),
    ({f'{OURS}q': [2], 'x': [4]}, {f'{T5}q': [2], 'x': [4]}, f'{OURS}q is not'),
    ({'x': [4]}, {'x': [4], 'a/y': [1]}, 'a/y is not in the model'),
    (
      {'x': [4]},
      {'x': [4], **{f'a{i}/y': [1] for i in range(5)}},
      'a0/y .*; a1/y .*; a2/y .*; and 2 more. Use the variant',
    ),
  ],
)
def test_a_run_resumes_only_from_the_same_variables(
  tmp_path, model, checkpoint, message
):
  with pytest.raises(UserError, match=message) as error:
    comparison.require_same(*made(tmp_path, model, checkpoint))
  assert 'operative_config.gin' in str(error.value)


@pytest.mark.parametrize(
  'model, checkpoint',
  [
    ({f'{OURS}q': [2], 'x_slot_v': [4]},) * 2,
    # One more in a scope that the model has, as in early T5 checkpoints.
    ({'a/x': [4]}, {'a/x': [4], 'a/bias': [1]}),
  ],
)
def test_and_does_so_from_these(tmp_path, model, checkpoint):
  comparison.require_same(*made(tmp_path, model, checkpoint))


@pytest.mark.parametrize(
  'model, checkpoint, message',
  [
    (
      {f'{OURS}q': [2], f'{OURS}o': [2], f'{OURS}v': [2]},
      {f'{T5}q': [2], f'{T5}o': [2]},
      r"it lacks 1 of the model's variables \(.*/v\)",
    ),
    (
      {f'{OURS}o': [2]},
      {f'{T5}o': [2], 'encoder/block_001/layer_000/SelfAttention/o': [2]},
      '1 of its variables belong to layers that the model lacks',
    ),
    (
      {f'{OURS}random/R': [2], 'x': [1]},
      {'x': [1]},
      r"it lacks 1 of the model's variables \(.*random/R\)",
    ),
    ({'x': [2]}, {'y': [2]}, 'it lacks'),
    ({}, {}, 'no variable in common'),
    (
      {f'{OURS}{i}': [2] for i in 'abcdefg'} | {'x': [1]},
      {'x': [1]},
      '/a; .*; and 2 more',
    ),
  ],
)
def test_weights_that_must_be_there(compare, model, checkpoint, message):
  found = compare(model, checkpoint or {'global_step': []})
  with pytest.raises(UserError, match='does not fit this model: ') as error:
    found.require_weights()
  assert re.search(message, str(error.value))


def test_a_function_may_start_anew_in_a_layer_that_is_there(compare):
  found = compare(
    {f'{OURS}o': [2], f'{OURS}random/R': [3], f'{OURS}alpha': [2]},
    {f'{T5}o': [2]},
  )
  assert sorted(found.new) == [f'{OURS}alpha', f'{OURS}random/R']
  found.require_weights()
  found.require_kinds()


def test_other_shapes_are_refused(compare):
  found = compare({'x': [4]}, {'x': [5]})
  with pytest.raises(
    UserError,
    match=r'other shapes or types: x is float32\[5\] in the checkpoint, '
    r'float32\[4\] in the model.*--resize',
  ):
    found.require_kinds()
