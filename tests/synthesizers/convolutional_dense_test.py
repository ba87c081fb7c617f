"""Convolutions as D's two layers (version 1, section 6.2)."""

import numpy as np
import pytest

import synth_mtf
from tests import checks, family, harness
from tests.family import PACKED, PADDED
from tests.harness import DECODER, ENCODER, LM

LINEAR = family.VARIANTS['convolution']
CONV_RELU_CONV = family.VARIANTS['conv_relu_conv']


def test_the_width_is_three_by_default():
  function = synth_mtf.ConvolutionalDense()
  assert function.filter_dim.size == 3
  assert function.relu


@pytest.mark.parametrize(
  'width, relu, letter',
  [
    (3, True, 'CRC'),
    (5, True, 'CRC5'),
    (3, False, 'Conv'),
    (7, False, 'Conv7'),
  ],
)
def test_the_letter_names_an_unusual_width(width, relu, letter):
  function = synth_mtf.ConvolutionalDense(filter_width=width, relu=relu)
  assert function.letter == letter


@pytest.mark.sampled
@pytest.mark.parametrize('width', [1, 4, 9])  # 9 is wider than the row
@family.both_rows
def test_filter_width(width, rows, stack):
  checks.parallel(CONV_RELU_CONV.of_size(filter_width=width), rows, stack)


@pytest.mark.sampled
@pytest.mark.parametrize(
  'member',
  [
    LINEAR,
    CONV_RELU_CONV.of_size(use_bias=True),
    *(CONV_RELU_CONV.of_size(filter_width=width) for width in (1, 4, 9)),
  ],
  ids=['linear', 'biased', 'one', 'four', 'nine'],
)
@pytest.mark.parametrize(
  'rows, stack',
  [(PADDED, ENCODER), (PACKED, DECODER)],
  ids=['padded', 'packed'],
)
def test_a_tpu_computes_the_reference(member, rows, stack):
  checks.parallel(member, rows, stack, mesh=harness.TPU)


EIGHT = family.Rows(
  np.array([[1] * 8, [1] * 5 + [0] * 3]), np.array([[1] * 6, [1, 1] + [0] * 4])
)


@pytest.mark.sampled
@pytest.mark.parametrize('dim', ['batch', 'heads', 'length'])
def test_a_mesh_may_split_what_a_tpu_shifts(dim):
  mesh = harness.Mesh('all:2', f'{dim}:all', tpu=True)
  checks.on_a_mesh(CONV_RELU_CONV.but(num_heads=2), EIGHT, ENCODER, mesh)


@pytest.mark.parametrize(
  'mesh, are_stored', [(harness.ONE_DEVICE, True), (harness.TPU, False)]
)
def test_a_tpu_stores_no_neighbours_of_the_input(mesh, are_stored):
  x = family.tokens(PADDED.ids)
  result = harness.parallel(LINEAR, x, PADDED.ids, ENCODER, mesh=mesh)
  *rows, d_model = x.shape
  assert ((*rows, 3, d_model) in result.shapes) == are_stored


@pytest.mark.parametrize(
  'member, width',
  [(LINEAR, 2), (CONV_RELU_CONV, 1), (CONV_RELU_CONV, 6)],
  ids=['linear', 'one', 'six'],
)
def test_decoding_keeps_the_window(member, width):
  """Also a window that begins before the first token."""
  member = member.of_size(filter_width=width)
  checks.decoded(member, (2, 5), np.array([1, 3]), LM)
