"""B: a low-rank image of the token, then a local function."""

import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness, reference
from tests.family import PACKED

MEMBER = family.VARIANTS['bottleneck_dense']


@pytest.mark.parametrize('d_model, r', [(11, 2), (12, 3), (3, 1)])
def test_the_default_is_a_quarter_of_the_model(d_model, r):
  member = MEMBER.of_size(bottleneck_size=None)
  found = harness.variables(member, harness.draw('x', [2, 7, d_model]))
  assert found['bottleneck_dense/D'] == (d_model, r)


def test_a_gated_function_inside():
  member = family.bottleneck(
    synth_mtf.GatedDense, reference.gated, 'gated_dense'
  )
  checks.parallel(member, PACKED)
  assert member.functions()[0].letter == 'BGLU'


@pytest.mark.parametrize('size', [11, 12])
def test_it_must_be_narrower_than_the_model(size):
  with pytest.raises(
    ConfigurationError,
    match=rf'BottleneckDense\.bottleneck_size = {size}: expected less than '
    'd_model = 11',
  ):
    harness.variables(
      MEMBER.of_size(bottleneck_size=size), family.tokens(PACKED.ids)
    )


@pytest.mark.parametrize(
  'inner', [synth_mtf.Random, lambda: synth_mtf.Dense(shared_query=True)]
)
def test_only_a_local_function_fits_inside(inner):
  with pytest.raises(
    ConfigurationError, match=r'BottleneckDense\.inner made .*local function'
  ):
    synth_mtf.BottleneckDense(inner=inner)
