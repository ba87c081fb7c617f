"""The tokens of which a model sums the loss."""

import types

import pytest
import tensorflow.compat.v1 as tf

from synth_mtf.host import losses


@pytest.mark.parametrize(
  'targets_only, members, expected',
  [(False, 0, 7), (True, 0, 4), (True, 3, 12)],
)
def test_tokens_of_the_loss(targets_only, members, expected):
  """Two inputs, which end with 1, and their targets; 0 is padding."""
  ids = [[5, 6, 1, 7, 1, 0], [1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
  ids[1] = [8, 1, 9, 1, 0, 0] if targets_only else [8, 1, 0, 0, 0, 0]
  dim = types.SimpleNamespace(size=members) if members else None
  model = types.SimpleNamespace(
    loss_on_targets_only=targets_only, ensemble_dim=dim
  )
  with tf.Graph().as_default(), tf.Session() as session:
    found = session.run(losses.tokens_of_loss(tf.constant(ids), model))
  assert found == expected
