"""FD: the outer product of two short vectors, read as one row."""

import numpy as np
import pytest

import synth_mtf
from synth_mtf.errors import ConfigurationError
from tests import checks, family, harness
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER


@pytest.mark.parametrize(
  'size, factors',
  [
    (1, (1, 1)),
    (13, (1, 13)),
    (114, (6, 19)),
    (256, (16, 16)),
    (512, (16, 32)),
  ],
)
def test_the_default_is_the_most_square_pair(size, factors):
  assert synth_mtf.FactorizedDense(max_length=size).factors == factors


@pytest.mark.sampled
@pytest.mark.parametrize(
  'factors, rows',
  [((2, 7), PACKED), ((7, 2), PADDED), ((1, 14), PADDED), ((14, 1), PACKED)],
)
def test_factors(factors, rows):
  member = family.FD.of_size(
    max_length=factors[0] * factors[1], factors=factors
  )
  checks.parallel(member, rows, ENCODER)


EIGHT = family.Rows(
  np.array([[1] * 8, [1] * 5 + [0] * 3]), np.array([[1] * 6, [1, 1] + [0] * 4])
)


@pytest.mark.sampled
@pytest.mark.parametrize(
  'factors', [(4, 2), (6, 2), (1, 8), (2, 8), (8, 1), (2, 5)]
)
@pytest.mark.parametrize('stack', [ENCODER, DECODER], ids=lambda s: s.name)
def test_a_tpu_reads_keys_in_blocks(factors, stack):
  """8 keys are 4, 1 or 8 whole blocks, or none, of as many or more columns."""
  member = family.FD.of_size(
    max_length=factors[0] * factors[1], factors=factors
  )
  checks.parallel(member, EIGHT, stack, mesh=harness.TPU)


@pytest.mark.parametrize('dim', ['batch', 'heads'])
def test_a_mesh_may_split_the_blocks_of_a_tpu(dim):
  member = family.FD.of_size(max_length=8, factors=(4, 2)).but(num_heads=2)
  mesh = harness.Mesh('all:2', f'{dim}:all', tpu=True)
  checks.on_a_mesh(member, EIGHT, ENCODER, mesh)


@pytest.mark.parametrize('keys, are_blocks', [(8, True), (5, False)])
def test_a_tpu_keeps_no_row_of_all_columns(keys, are_blocks):
  """Nothing of the logits' size but E, which has the keys in front."""
  rows = family.Rows(np.ones([2, keys], int), EIGHT.inputs)
  member = family.FD.of_size(max_length=8, factors=(4, 2))
  result = harness.parallel(
    member, family.tokens(rows.ids), rows.ids, ENCODER, mesh=harness.TPU
  )
  in_blocks = (2, family.HEADS, 4, 2, keys)
  assert (in_blocks in result.shapes) == are_blocks


@pytest.mark.parametrize(
  'factors', [(3, 4), (13,), (0, 13), (-1, -13), (13, 1, 1)]
)
def test_factors_that_do_not_fit(factors):
  with pytest.raises(
    ConfigurationError,
    match=r'FactorizedDense\.factors = .*: expected \(a, b\) with a b = 13, '
    r'for example \(1, 13\)',
  ):
    synth_mtf.FactorizedDense(factors=factors, max_length=13)
