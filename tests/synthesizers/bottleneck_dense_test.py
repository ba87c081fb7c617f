"""A low-rank image of the token, then a local function."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER

PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 0, 0]])


def layer(**settings):
  function = functools.partial(synth_mtf.BottleneckDense, **settings)
  return family.Member((function,), ()).maker


def test_variables():
  """r is d_model / 4 by default, rounded down."""
  x = family.tokens(np.ones([2, 7]))
  inner = functools.partial(synth_mtf.Dense, max_length=13)
  weights = harness.parallel(layer(inner=inner)(), x).weights
  assert {n: w.shape for n, w in weights.items()} == {
    'bottleneck_dense/D': (11, 2),
    'bottleneck_dense/U': (2, 11),
    'bottleneck_dense/dense/W1': (11, 3, 5),
    'bottleneck_dense/dense/W2': (3, 5, 13),
    'v': (11, 15),
    'o': (15, 11),
  }


def test_a_gated_inside():
  checks.parallel(
    layer(
      bottleneck_size=3,
      inner=functools.partial(synth_mtf.GatedDense, max_length=13),
    )(packed=True),
    reference.Layer(
      [
        reference.bottleneck(
          reference.gated(13, scope='bottleneck_dense/gated_dense')
        )
      ],
      family.HEADS,
      family.D_KV,
    ),
    PACKED,
    DECODER,
  )


@pytest.mark.parametrize('size', [11, 12])
def test_it_must_be_narrower_than_the_model(size):
  with pytest.raises(
    ConfigurationError,
    match=rf'BottleneckDense\.bottleneck_size = {size}: expected less than '
    'd_model = 11',
  ):
    harness.parallel(
      layer(bottleneck_size=size)(), family.tokens(np.ones([2, 7]))
    )


def test_settings_that_do_not_fit():
  with pytest.raises(
    ConfigurationError,
    match=r'BottleneckDense\.bottleneck_size = 0: expected at least 1',
  ):
    synth_mtf.BottleneckDense(bottleneck_size=0)
  with pytest.raises(
    ConfigurationError, match=r'BottleneckDense\.inner made .*local function'
  ):
    synth_mtf.BottleneckDense(inner=synth_mtf.Random)
