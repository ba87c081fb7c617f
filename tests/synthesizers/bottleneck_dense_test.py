"""A low-rank image of the token, then a local function."""

import functools

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.harness import DECODER

PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 0, 0]])
X = family.tokens(PACKED)
MEMBER = family.VARIANTS['bottleneck_dense']


def test_variables():
  assert harness.variables(MEMBER.of_size(bottleneck_size=3).maker(), X) == {
    'bottleneck_dense/D': (11, 3),
    'bottleneck_dense/U': (3, 11),
    'bottleneck_dense/dense/W1': (11, 3, 5),
    'bottleneck_dense/dense/W2': (3, 5, 13),
    'v': (11, 15),
    'o': (15, 11),
  }


@pytest.mark.parametrize('d_model, r', [(11, 2), (12, 3), (3, 1)])
def test_the_bottleneck_is_a_quarter_of_the_model(d_model, r):
  member = MEMBER.of_size(bottleneck_size=None)
  x = harness.draw('x', [2, 7, d_model])
  found = harness.variables(member.maker(), x)
  assert found['bottleneck_dense/D'] == (d_model, r)
  (function,) = member.functions()
  made = sum(
    int(np.prod(shape)) for n, shape in found.items() if n not in ('v', 'o')
  )
  assert function.parameters(d_model, family.HEADS, family.D_KV) == made


def test_a_gated_inside():
  member = family.alone(
    synth_mtf.BottleneckDense,
    functools.partial(
      reference.bottleneck,
      inner=functools.partial(
        reference.gated, scope='bottleneck_dense/gated_dense'
      ),
    ),
    bottleneck_size=3,
    inner=functools.partial(synth_mtf.GatedDense, max_length=13),
  )
  checks.parallel(
    member.maker(packed=True), member.reference(), PACKED, DECODER
  )
  assert member.functions()[0].letter == 'BGLU'


@pytest.mark.parametrize('size', [11, 12])
def test_it_must_be_narrower_than_the_model(size):
  member = MEMBER.of_size(bottleneck_size=size)
  with pytest.raises(
    ConfigurationError,
    match=rf'BottleneckDense\.bottleneck_size = {size}: expected less than '
    'd_model = 11',
  ):
    harness.variables(member.maker(), X)


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
