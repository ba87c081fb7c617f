"""The neighbours of each token, as a convolution sees them."""

import mesh_tensorflow as mtf
import numpy as np
import pytest

from synth_mtf.core import neighbours
from tests import harness
from tests.core import calls
from tests.harness import DECODER, ENCODER, LM

IDS = np.array([[1, 1, 2, 2], [1, 1, 1, 0]])
X = harness.draw('x', [calls.BATCH, calls.LENGTH, calls.D_MODEL])


def width(size):
  return mtf.Dimension('filter_width', size)


def expected(ids, offsets):
  """x_(i+o), 0 outside of token i's own sequence."""
  y = np.zeros([*X.shape[:2], len(offsets), X.shape[2]])
  for row, i, (at, o) in (
    (row, i, pair)
    for row in range(len(X))
    for i in range(X.shape[1])
    for pair in enumerate(offsets)
  ):
    if 0 <= i + o < X.shape[1] and ids[row, i] == ids[row, i + o]:
      y[row, i, at] = X[row, i + o]
  return y


@pytest.mark.parametrize('ids', [None, IDS], ids=['whole', 'packed'])
@pytest.mark.parametrize(
  'stack, size, offsets',
  [
    (ENCODER, 1, [0]),
    (ENCODER, 2, [-1, 0]),
    (ENCODER, 3, [-1, 0, 1]),
    (ENCODER, 5, [-2, -1, 0, 1, 2]),
    (DECODER, 1, [0]),
    (LM, 3, [-2, -1, 0]),
  ],
)
def test_of_whole_rows(ids, stack, size, offsets):
  def build(mesh):
    call = calls.make(mesh, ids, stack)
    found = neighbours.neighbours(call.context, call.x, width(size))
    assert [d.name for d in found.shape] == [
      'batch', 'length', 'filter_width', 'd_model',
    ]  # fmt: skip
    return found

  ones = np.ones([calls.BATCH, calls.LENGTH], int)
  np.testing.assert_array_equal(
    harness.evaluate(build), expected(ones if ids is None else ids, offsets)
  )


@pytest.mark.parametrize('size', [1, 2, 4])
def test_decoding_starts_with_the_tokens_ahead_of_the_first(size):
  """None of which there may be: then they are 0."""
  start = np.array([1, 3])

  def build(mesh):
    call = calls.make(mesh, None, LM, mode='first_part')
    call.context.new_states = []
    call.context.initial_position = harness.constant(mesh, start, 'batch')
    found = neighbours.neighbours(call.context, call.x, width(size))
    assert len(call.context.new_states) == (size > 1)
    return found, call.context.new_states

  found, states = harness.evaluate(build)
  ones = np.ones([calls.BATCH, calls.LENGTH], int)
  np.testing.assert_array_equal(found, expected(ones, range(1 - size, 1)))
  if size == 1:
    return
  (state,) = states
  for row, first in enumerate(start):
    for at, position in enumerate(range(first - size + 1, first)):
      wanted = X[row, position] if position >= 0 else 0
      np.testing.assert_array_equal(state[row, at], wanted)


@pytest.mark.parametrize('size', [1, 3])
def test_a_step_keeps_all_but_the_oldest(size):
  earlier = harness.draw('earlier', [calls.BATCH, size - 1, calls.D_MODEL])

  def build(mesh):
    context = calls.make(mesh, None, LM).context
    context.mode = 'incremental'
    context.new_states = []
    context.states = []
    if size > 1:
      context.states = [
        harness.constant(mesh, earlier, 'batch earlier d_model')
      ]
    token = harness.constant(mesh, X[:, 0], 'batch d_model')
    found = neighbours.neighbours(context, token, width(size))
    return found, context.new_states

  found, states = harness.evaluate(build)
  window = np.concatenate([earlier, X[:, :1]], axis=1)
  np.testing.assert_array_equal(found, window)
  if size > 1:
    np.testing.assert_array_equal(states[0], window[:, 1:])
