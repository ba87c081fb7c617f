"""The whole family against the reference, in every mode of the host."""

import numpy as np
import pytest

from tests import checks, family, harness
from tests.harness import DECODER, ENCODER, LM

PADDED = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
PACKED = np.array([[1, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 2, 2, 0]])

every_member = pytest.mark.parametrize('name', sorted(family.ALL))


@every_member
def test_encoder_with_padding(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(relative_attention_type='bias'),
    member.reference(relative='bias'),
    PADDED,
    ENCODER,
  )


@every_member
def test_decoder_with_packed_rows(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(packed=True), member.reference(), PACKED, DECODER
  )


@every_member
def test_bfloat16(name):
  member = family.ALL[name]
  checks.parallel(
    member.maker(),
    member.reference(),
    PADDED,
    DECODER,
    dtype='bfloat16',
    weights=lambda n, shape: harness.draw(n, shape, 0.3),
  )


@every_member
@pytest.mark.parametrize('beam', [False, True], ids=['greedy', 'beam'])
def test_incremental_is_parallel(name, beam):
  member = family.ALL[name]
  ones = np.ones([2, 3, 5] if beam else [2, 5], int)
  x = family.tokens(ones)
  settings = {'relative_attention_type': 'bias'}
  parallel = harness.parallel(
    member.maker(**settings), x, ones, DECODER, mode='eval'
  )
  harness.assert_close(
    harness.decode(member.maker(**settings), x, beam=beam),
    parallel.output,
    'token by token',
  )


@every_member
def test_incremental_goes_on_from_a_partial_sequence(name):
  member = family.ALL[name]
  x = family.tokens(np.ones([2, 5], int))
  start = np.array([3, 1])
  decoded = harness.decode(member.maker(), x, start, stack=LM)
  parallel = harness.parallel(member.maker(), x, None, LM, mode='eval').output
  new = np.arange(5) >= start[:, None]
  harness.assert_close(decoded[new], parallel[new], 'after the given tokens')
