"""ConvReluDense against NumPy in float64, packed and token by token."""

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import harness
from tests.family import PACKED
from tests.harness import DECODER, ENCODER

D_MODEL, D_FF, WIDTH = 11, 13, 3


def maker():
  return synth_mtf.ConvReluDense(hidden_size=D_FF, filter_width=WIDTH)


def expected(x, ids, offsets):
  x = x.astype(np.float64) * (ids != 0)[..., None]
  wi = harness.draw('wi/kernel', [WIDTH, D_MODEL, D_FF]).astype(np.float64)
  wo = harness.draw('wo/kernel', [D_FF, D_MODEL]).astype(np.float64)
  y = np.zeros(x.shape)
  for row, i in np.ndindex(*ids.shape):
    h = np.zeros(D_FF)
    for tap, offset in enumerate(offsets):
      j = i + offset
      if 0 <= j < ids.shape[1] and ids[row, j] == ids[row, i]:
        h += x[row, j] @ wi[tap]
    y[row, i] = np.maximum(h, 0) @ wo
  return y


@pytest.mark.parametrize(
  'stack, offsets',
  [(ENCODER, (-1, 0, 1)), (DECODER, (-2, -1, 0))],
  ids=['encoder', 'decoder'],
)
def test_packed_rows(stack, offsets):
  ids = PACKED.ids
  x = harness.draw('x', [*ids.shape, D_MODEL])
  found = harness.parallel(maker, x, ids, stack)
  harness.assert_close(
    found.output[ids != 0], expected(x, ids, offsets)[ids != 0], 'output'
  )
  assert {n: w.shape for n, w in found.weights.items()} == {
    'wi/kernel': (WIDTH, D_MODEL, D_FF),
    'wo/kernel': (D_FF, D_MODEL),
  }


@pytest.mark.parametrize('start', [None, np.array([2, 0])], ids=['all', 'rest'])
def test_decoding_computes_what_training_computes(start):
  x = harness.draw('x', [2, 7, D_MODEL])
  found, _ = harness.decode(maker, x, start)
  seen = np.isnan(found)
  parallel = expected(x, np.ones([2, 7], int), (-2, -1, 0))
  assert seen.any() == (start is not None)
  harness.assert_close(found[~seen], parallel[~seen], 'decoded')


def test_a_size_below_one_is_refused():
  with pytest.raises(ConfigurationError, match='filter_width = 0'):
    synth_mtf.ConvReluDense(filter_width=0)


def test_dropout_is_that_of_t5_the_same_for_all_positions():
  x = np.broadcast_to(harness.draw('x', [3, 1, D_MODEL]), [3, 7, D_MODEL])
  found = harness.parallel(
    lambda: synth_mtf.ConvReluDense(
      hidden_size=D_FF, filter_width=WIDTH, dropout_rate=0.5
    ),
    x,
    np.ones([3, 7], int),
  ).output[:, 1:-1]  # those with both neighbours
  harness.assert_close(found, found[:, :1].repeat(5, axis=1), 'positions')
  kept = expected(x, np.ones([3, 7], int), (-1, 0, 1))[:, 1:-1]
  assert (abs(found - kept).max(axis=(1, 2)) > 1e-2).all()
